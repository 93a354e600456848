"""Lists of paths, globs, and columns of tables with paths or bytes of files."""

import io
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import torch

import imix
from imix import DataSettings, InputError
from imix.data import load
from imix.data.media import images
from tests.data.media.helpers import QUICK, SHORT_CLIPS, tone, write_audio, write_image


@pytest.fixture
def animals(tmp_path):
    """A folder of eight images in two classes."""
    for i in range(4):
        write_image(tmp_path / "animals" / "cat" / f"{i}.png", size=(12, 12), color=(220, 60, 60))
        write_image(tmp_path / "animals" / "dog" / f"{i}.png", size=(12, 12), color=(60, 60, 220))
    return tmp_path / "animals"


@pytest.fixture
def paths(animals):
    return [str(path) for path in sorted(animals.rglob("*.png"))]


@pytest.fixture
def frame(paths):
    """A data frame of paths, labels and ids."""
    return pandas.DataFrame({"file": paths, "animal": ["cat"] * 4 + ["dog"] * 4, "id": [f"{i:03}" for i in range(8)]})


def stored(paths, kind="struct"):
    """A column with the content of files, as Hugging Face stores it or as plain bytes."""
    contents = [Path(path).read_bytes() for path in paths]
    return contents if kind == "bytes" else [{"bytes": each, "path": None} for each in contents]


def test_lists_arrays_and_series_of_paths_are_samples_in_order(paths):
    shuffled = [paths[i] for i in (5, 0, 3, 0)]
    expected = load(paths).train.inputs[[5, 0, 3, 0]]
    for data in (
        shuffled,
        tuple(shuffled),
        np.array(shuffled),
        np.array(shuffled, object),
        pandas.Series(shuffled),
        polars.Series(shuffled),
        pyarrow.array(shuffled),
    ):
        loaded = load(data, labels=[1, 0, 0, 0])
        assert torch.equal(loaded.train.inputs, expected) and loaded.train.labels.tolist() == [1, 0, 0, 0]
        assert list(loaded.sample_names) == shuffled


def test_labels_of_paths_are_values_of_any_kind_one_per_path(paths):
    for labels in (torch.tensor([7, 9] * 4), [7, 9] * 4, pandas.Series([7, 9] * 4)):
        data = load(paths, labels=labels)
        assert data.train.labels.tolist() == [0, 1] * 4 and data.class_names == ["7", "9"]
    assert load(paths, labels=[0.5] * 8).train.is_numeric
    with pytest.raises(InputError, match=r"labels of the 8 samples of in-memory data must have shape \(8,\)"):
        load(paths, labels=torch.tensor([0, 1]))


def test_globs_find_files_and_the_folders_below_their_root_are_classes(animals, monkeypatch):
    monkeypatch.chdir(animals.parent)
    assert torch.equal(load("animals/*/*.png").train.inputs, load(animals).train.inputs)
    assert load("animals/**/[01].png").class_names == ["cat", "dog"]
    assert load("animals/cat/*.png").train.labels is None
    split = load("animals/*/[012].png", DataSettings(test="animals/*/3.png"))
    assert (len(split.train), len(split.test), split.class_names) == (6, 2, ["cat", "dog"])
    with pytest.raises(InputError, match=r"no file matches '.*animals/\*\.jpg'"):
        load("animals/*.jpg")
    with pytest.raises(InputError, match="must not overlap"):
        load("animals/*/*.png", DataSettings(test="animals/*/3.png"))


def test_a_folder_whose_name_looks_like_a_glob_is_a_folder(tmp_path):
    write_image(tmp_path / "photos [1]" / "a" / "1.png")
    write_image(tmp_path / "photos [1]" / "b" / "1.png")
    assert load(tmp_path / "photos [1]").class_names == ["a", "b"]


@pytest.mark.parametrize("format", ["pandas", "polars", "arrow", "csv", "parquet"])
def test_a_column_of_paths_is_read_with_the_labels_of_another_column(animals, frame, tmp_path, format):
    expected = load(animals).train
    if format in ("csv", "parquet"):  # relative to the folder of the table
        frame = frame.assign(file=frame["file"].str.removeprefix(f"{tmp_path}/"))
        data = tmp_path / f"t.{format}"
        frame.to_csv(data, index=False) if format == "csv" else frame.to_parquet(data)
    else:
        data = {"pandas": frame, "polars": polars.from_pandas(frame), "arrow": pyarrow.Table.from_pandas(frame)}[format]
    loaded = load(data, DataSettings(path_column="file", label="animal"))
    assert torch.equal(loaded.train.inputs, expected.inputs) and torch.equal(loaded.train.labels, expected.labels)
    assert (loaded.class_names, loaded.table) == (["cat", "dog"], None)


def test_test_files_of_a_table_are_relative_to_its_own_folder(animals, frame, tmp_path):
    frame.assign(file=[path.split("animals/")[1] for path in frame["file"]]).to_csv(animals / "all.csv", index=False)
    frame.assign(file=[f"animals/{path.split('animals/')[1]}" for path in frame["file"]]).head(5).to_csv(
        tmp_path / "test.csv", index=False
    )
    data_settings = DataSettings(path_column="file", label="animal", test=str(tmp_path / "test.csv"))
    data = load(animals / "all.csv", data_settings)
    assert torch.equal(data.test.inputs, data.train.inputs[:5]) and data.test.labels.tolist() == [0] * 4 + [1]


@pytest.mark.parametrize("kind", ["struct", "bytes"])
@pytest.mark.parametrize("streamed", [False, True])
def test_bytes_of_images_are_samples(paths, tmp_path, monkeypatch, kind, streamed):
    expected = load(paths).train.inputs
    if streamed:
        monkeypatch.setattr(images, "MAX_BYTES_IN_MEMORY", 0)
    frame = pandas.DataFrame({"image": stored(paths, kind), "animal": [0, 1] * 4})
    frame.to_parquet(tmp_path / "t.parquet")
    for data in (frame, tmp_path / "t.parquet"):
        loaded = load(data, DataSettings(label="animal"))
        assert torch.equal(loaded.train.sample(8), expected) and loaded.train.labels.tolist() == [0, 1] * 4
        assert "row 3 of column 'image'" in loaded.sample_names[3]


@pytest.mark.parametrize("data", ["parts", "parts/*.parquet"])
def test_a_folder_of_parquet_files_with_bytes_is_one_data_set(paths, tmp_path, data):
    """As Hugging Face stores a large data set."""
    frame = pandas.DataFrame({"image": stored(paths), "animal": [0, 1] * 4})
    (tmp_path / "parts").mkdir()
    frame[:5].to_parquet(tmp_path / "parts" / "train-00000-of-00002.parquet")
    frame[5:].to_parquet(tmp_path / "parts" / "train-00001-of-00002.parquet")
    loaded = load(tmp_path / data, DataSettings(label="animal", image_size=12))
    assert torch.equal(loaded.train.inputs, load(paths).train.inputs)
    assert loaded.train.labels.tolist() == [0, 1] * 4


@pytest.mark.parametrize("kind", ["struct", "bytes"])
def test_bytes_of_audio_are_samples(tmp_path, cache, kind):
    paths = [write_audio(tmp_path / "clips" / f"{i}.{suffix}") for i, suffix in enumerate(("wav", "flac", "ogg"))]
    expected = load(paths, SHORT_CLIPS)
    for data in (polars.DataFrame({"clip": stored(paths, kind)}), paths):
        loaded = load(data, SHORT_CLIPS)
        assert torch.equal(loaded.train.inputs, expected.train.inputs) and loaded.clip == expected.clip
    other = [write_audio(tmp_path / "clips" / f"{i}.wav", tone(900 + i)) for i in range(3)]
    changed = load(polars.DataFrame({"clip": stored(other, kind)}), SHORT_CLIPS)  # not the cached clips
    assert not torch.equal(changed.train.inputs, expected.train.inputs)


def test_a_run_on_a_table_of_files_embeds_every_row_and_keeps_columns(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False)
    data_settings = DataSettings(path_column="file", label="animal")
    run = imix.pretrain(tmp_path / "t.csv", QUICK, data_settings, out=tmp_path / "run", progress=False)
    assert imix.evaluate(tmp_path / "run", protocol="knn").split.test == 1
    vectors = imix.embed(run, tmp_path / "t.csv", tmp_path / "z.parquet", keep=["id"])
    written = polars.read_parquet(tmp_path / "z.parquet")
    assert written["id"].to_list() == list(frame["id"]) and written["label"].to_list() == list(frame["animal"])
    assert np.array_equal(imix.embed(run, frame.drop(columns="animal")), vectors)  # rows without labels
    assert np.array_equal(imix.embed(run, list(frame["file"][::-1])), vectors[::-1])
    renamed = frame.rename(columns={"file": "where"})
    assert np.array_equal(imix.embed(run, renamed, path_column="where"), vectors)
    tuned = imix.finetune(run, renamed, path_column="where", epochs=1, device="cpu")
    assert imix.predict(tuned, renamed, path_column="where").classes == ("cat", "dog")


def test_a_run_on_a_folder_evaluates_and_maps_a_table_of_files(animals, frame, tmp_path):
    run = imix.pretrain(animals, QUICK, progress=False)
    result = imix.evaluate(run, frame, "linear", path_column="file", label="animal")
    assert result.split.train == 7 and result.classes == ["cat", "dog"]
    imix.draw_map(run, tmp_path / "map.svg", frame, path_column="file", label="animal")
    assert "dog" in (tmp_path / "map.svg").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({3: "gone.png"}, r"item 3 of the list of paths is 'gone\.png', which is not a file"),
        ({2: None}, "item 2 of the list of paths is None; it must be the path of a file"),
        ({1: 7}, "item 1 of the list of paths is 7"),
        ({0: "/etc/hostname"}, "/etc/hostname is neither an image nor an audio file"),
    ],
)
def test_a_list_with_something_else_than_a_file_is_an_error_that_names_it(paths, change, message):
    with pytest.raises(InputError, match=message):
        load([change.get(i, path) for i, path in enumerate(paths)])


def test_a_list_of_images_and_audio_is_an_error(paths, tmp_path):
    with pytest.raises(InputError, match=r"images and audio files cannot be mixed; got '.*0\.png' and '.*a\.wav'"):
        load([*paths, write_audio(tmp_path / "a.wav")])


def test_broken_files_of_a_list_are_all_reported_and_an_error(paths, capsys):
    for path in paths[2:4]:
        open(path, "wb").close()
    with pytest.raises(InputError, match=rf"2 of the 8 images cannot be decoded; the first is '{paths[2]}'; remove"):
        load(paths)
    message = capsys.readouterr().err
    assert all(f"skipped {path!r}" in message for path in paths[2:4])


def test_a_missing_file_in_a_column_is_an_error_that_names_the_row(frame, tmp_path):
    frame.loc[5, "file"] = "gone.png"
    frame.to_csv(tmp_path / "t.csv", index=False)
    message = rf"row 5 of column 'file' of {tmp_path}/t\.csv is '{tmp_path}/gone\.png', which is not a file"
    with pytest.raises(InputError, match=message):
        load(tmp_path / "t.csv", DataSettings(path_column="file"))


@pytest.mark.parametrize("options", [{}, {"label": "animal"}])
def test_a_table_of_paths_is_refused_with_a_suggestion(frame, options):
    message = r"column 'file' of the data has paths of files; pass `path_column='file'` .*`columns=\{'file': 'drop'\}`"
    with pytest.raises(InputError, match=message):
        load(frame, DataSettings(**options))
    frame["size"] = np.arange(8) * 0.5
    assert load(frame, DataSettings(columns={"file": "drop"})).table.kinds["size"] == "numeric"


def test_a_folder_of_tables_of_paths_is_refused_with_a_suggestion(frame, tmp_path):
    (tmp_path / "parts").mkdir()
    for i, part in enumerate((frame[:4], frame[4:])):
        part.to_csv(tmp_path / "parts" / f"{i}.csv", index=False)
    with pytest.raises(InputError, match=r"column 'file' of .* has paths of files"):
        load(tmp_path / "parts", DataSettings(label="animal"))


def test_remote_paths_are_refused(tmp_path):
    urls = [f"s3://bucket/{i}.jpg" for i in range(4)]
    for data, data_settings in ((urls, DataSettings()), (polars.DataFrame({"u": urls}), DataSettings(path_column="u"))):
        with pytest.raises(InputError, match=r"0 .* is 's3://bucket/0\.jpg'; remote paths are not read: download"):
            load(data, data_settings)
    for url in ("s3://bucket/t.csv", "https://host/photos"):
        with pytest.raises(InputError, match=r"is a remote path, which is not read: download the data first"):
            load(url)


def test_a_table_without_inputs_is_refused_with_a_suggestion():
    names = polars.DataFrame({"file": [f"photo {i}" for i in range(20)], "y": ["a", "b"] * 10})
    with pytest.raises(InputError, match=r"; to use 'file', pass `columns=.*image or audio files, add their suffixes"):
        load(names, DataSettings(label="y"))
    with pytest.raises(InputError, match=r"\('y': label\); pass a table with other columns"):
        load(names.select("y"), DataSettings(label="y"))
    with pytest.raises(InputError, match="no other is usable; store images or audio files, or numbers in columns"):
        load(polars.DataFrame({"blob": [b"x"] * 20}))


def test_a_table_of_unreadable_bytes_is_refused_if_only_a_label_is_left():
    frame = polars.DataFrame({"blob": [b"x"] * 20, "y": [0, 1] * 10})
    with pytest.raises(
        InputError,
        match=r"'blob' .* bytes that are not image or audio files, .* only other column is 'y'; pass `columns",
    ):
        load(frame)
    more = frame.with_columns(a=np.arange(20) * 0.5)
    assert load(more, DataSettings(label="y")).table.ignored["blob"] == "bytes"


def test_parquet_files_with_a_column_of_paths_are_one_data_set(frame, paths, tmp_path):
    (tmp_path / "parts").mkdir()
    names = [Path("..") / Path(path).relative_to(tmp_path) for path in paths]
    for i, part in enumerate((frame.assign(file=list(map(str, names)))[:2], frame.assign(file=paths)[2:])):
        part.to_parquet(tmp_path / "parts" / f"{i}.parquet")
    for data in (tmp_path / "parts", tmp_path / "parts/*.parquet"):
        loaded = load(data, DataSettings(path_column="file", label="animal"))
        assert torch.equal(loaded.train.inputs, load(paths).train.inputs)
        assert (
            loaded.train.labels.tolist()
            == load(frame, DataSettings("animal", path_column="file")).train.labels.tolist()
        )
    frame.to_csv(tmp_path / "parts" / "a.csv")
    with pytest.raises(InputError, match=r"`path_column` only applies to .* is a table in several CSV files"):
        load(tmp_path / "parts/*.csv", DataSettings(path_column="file"))


def test_arrays_of_images_can_be_embedded_by_a_run_that_was_trained_on_a_table_of_images(frame, tmp_path):
    run = imix.pretrain(frame, QUICK, DataSettings("animal", path_column="file"), progress=False)
    pixels = load(frame, run.data_settings).train.inputs
    np.savez(tmp_path / "x.npz", x=pixels, y=np.arange(8) % 2)
    expected = imix.embed(run, frame)
    for data in (pixels, pixels.numpy(), tmp_path / "x.npz"):
        assert np.allclose(imix.embed(run, data), expected, atol=1e-6)


def test_files_in_several_columns_need_a_choice(paths):
    frame = polars.DataFrame({"a": stored(paths), "b": stored(paths[::-1])})
    with pytest.raises(InputError, match="files in several columns: a, b; pass one as `path_column`"):
        load(frame)
    assert torch.equal(load(frame, DataSettings(path_column="b")).train.inputs, load(paths[::-1]).train.inputs)
    assert torch.equal(load(frame, DataSettings(columns={"a": "drop"})).train.inputs, load(paths[::-1]).train.inputs)


@pytest.mark.parametrize("path", [None, "gone.png"])
def test_a_row_without_bytes_needs_the_path_of_a_file(paths, tmp_path, path):
    contents = [*stored(paths)[:3], {"bytes": None, "path": path}]
    polars.DataFrame({"image": contents}).write_parquet(tmp_path / "{0}.parquet")
    with pytest.raises(InputError, match=r"row 3 of column 'image' of .*/\{0\}\.parquet is .*(None|'.*gone\.png')"):
        load(tmp_path / "{0}.parquet")
    linked = [{"bytes": None, "path": paths[3]}]
    assert torch.equal(load(polars.DataFrame({"image": linked})).train.inputs, load(paths[3:4]).train.inputs)


def test_a_column_of_numbers_is_no_path_column(frame):
    with pytest.raises(InputError, match="`path_column='n'` must have paths or bytes of files; its type is int64"):
        load(frame.assign(n=1), DataSettings(path_column="n"))
    with pytest.raises(InputError, match=r"has no column 'files' \(did you mean 'file'\?\)"):
        load(frame, DataSettings(path_column="files"))


def test_only_images_and_audio_are_files(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    frame = polars.DataFrame({"image": [{"bytes": buffer.getvalue(), "path": "x.npy"}]})
    with pytest.raises(InputError, match=r"row 0 of column 'image' .* is neither an image nor an audio file"):
        load(frame)
