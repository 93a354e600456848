"""Images and audio in tar shards: the samples of a folder, in memory or streamed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import imix
from imix import DataSettings, InputError
from imix.data import TensorSource, load
from imix.data.media import images, shards
from imix.data.media.images import ImageFiles
from imix.data.media.tar_index import Member
from imix.run import checkpoint
from tests.data.media.helpers import QUICK, SHORT_CLIPS, tone, write_audio
from tests.data.media.shards import png, write_shards, write_tar


@pytest.fixture
def folder(tmp_path):
    return write_shards(tmp_path / "shards")


@pytest.fixture
def streamed(monkeypatch):
    """Images are streamed, in blocks of four samples of which three are mixed."""
    monkeypatch.setattr(images, "MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(images, "BLOCKS_AT_A_TIME", 3)
    monkeypatch.setattr(shards, "SAMPLES_PER_BLOCK", 4)


def all_images(source):
    return torch.cat([x for x, _ in source.batches(torch.arange(len(source)).split(16))])


@pytest.fixture
def image_folder(tmp_path):
    """The images of the shards, as files."""
    (tmp_path / "images").mkdir()
    for i in range(60):
        (tmp_path / "images" / f"{i:05}.png").write_bytes(png(i))
    return tmp_path / "images"


def test_samples_are_those_of_the_files(folder, image_folder):
    data = load(folder)
    assert isinstance(data.train, TensorSource)
    assert data.train.inputs.equal(load(image_folder).train.inputs)
    assert data.train.labels.tolist() == [i % 11 for i in range(60)]
    assert data.class_names == [str(i) for i in range(11)], "numbers are sorted by value"
    assert data.sample_names[21] == f"{folder}/001.tar/00021.png"


@pytest.mark.parametrize(
    ("pattern", "n"), [("{000..002}.tar", 60), ("*.tar", 60), ("{000,002}.tar", 40), ("001.tar", 20)]
)
def test_shards_are_named_by_a_pattern_or_a_path(folder, pattern, n):
    assert len(load(str(folder / pattern)).train) == n


def test_streamed_samples_are_the_same(folder, image_folder, streamed):
    train = load(folder).train
    assert isinstance(train, ImageFiles) and train.in_blocks
    assert all_images(train).equal(all_images(load(image_folder).train))
    assert train.labels.tolist() == [i % 11 for i in range(60)]


def test_an_epoch_visits_every_sample_once_and_few_blocks_at_a_time(folder, streamed):
    train = load(folder).train
    order = train.epoch_order(0, 0)
    assert order.sort().values.equal(torch.arange(60))
    assert train.blocks.unique_consecutive(return_counts=True)[1].tolist() == [4] * 15, "blocks do not span shards"
    assert max(len(blocks.unique()) for blocks in train.blocks[order].split(8)) <= 6
    part = train.take(torch.arange(10, 30))
    assert part.epoch_order(0, 0).sort().values.equal(torch.arange(20)) and all_images(part).equal(
        all_images(train)[10:30]
    )


def test_test_shards(folder, tmp_path):
    write_shards(tmp_path / "other", n_shards=1)
    data = load(folder / "{000..001}.tar", DataSettings(test=str(tmp_path / "other" / "000.tar")))
    assert (len(data.train), len(data.test), data.n_classes) == (40, 20, 11)


def test_audio_shards(tmp_path, cache):
    paths = [
        write_audio(tmp_path / "files" / f"{i}.{'wav' if i % 2 else 'flac'}", tone(300 + 50 * i)) for i in range(8)
    ]
    files = [(path.name, path.read_bytes()) for path in paths] + [(f"{i}.cls", b"ab"[i % 2 :][:1]) for i in range(8)]
    data = load(write_tar(tmp_path / "shards" / "0.tar", files), SHORT_CLIPS)
    assert data.train.inputs.equal(load(tmp_path / "files", SHORT_CLIPS).train.inputs)
    assert data.class_names == ["a", "b"] and data.train.labels.tolist() == [0, 1] * 4
    assert data.augment == "audio"


@pytest.mark.slow
@pytest.mark.parametrize("where", ["memory", "shards"])
def test_an_interrupted_run_resumes_bit_for_bit(folder, tmp_path, monkeypatch, request, where):
    if where == "shards":
        request.getfixturevalue("streamed")
    settings = replace(QUICK, batch_size=16, checkpoint_minutes=0)

    def start(name, **options):
        return imix.pretrain(folder, settings, out=tmp_path / name, progress=False, **options)

    original, calls = checkpoint.save, []

    def save_then_die(path, state):
        original(path, state)
        calls.append(path)
        if len(calls) == 5:  # in the second epoch
            raise KeyboardInterrupt

    uninterrupted = start("uninterrupted")
    monkeypatch.setattr(checkpoint, "save", save_then_die)
    with pytest.raises(KeyboardInterrupt):
        start("killed")
    monkeypatch.setattr(checkpoint, "save", original)
    resumed = start("killed", resume=True)
    assert [record["loss"] for record in resumed.metrics] == [record["loss"] for record in uninterrupted.metrics]
    before, after = (run.encoder.state_dict() for run in (uninterrupted, resumed))
    assert [name for name in before if not before[name].equal(after[name])] == []


@pytest.mark.slow
def test_runs_on_shards(folder, tmp_path, streamed):
    run = imix.pretrain(folder, QUICK, out=tmp_path / "run", progress=False)
    assert imix.evaluate(run, protocol="knn", test=str(folder / "000.tar")).split.test == 20
    imix.embed(run, folder, tmp_path / "z.parquet")
    import pandas

    assert pandas.read_parquet(tmp_path / "z.parquet")["label"].tolist() == [str(i % 11) for i in range(60)]


@pytest.mark.parametrize(
    ("files", "labels"),
    [
        ([("a.cls", b"10"), ("b.cls", b"9")], [1, 0]),
        ([("a.cls", b"x"), ("b.json", b'{"cls": "w"}')], [1, 0]),
        ([("a.json", b"2.5"), ("b.json", b"1")], [2.5, 1.0]),
        ([("b.cls", b"only")], [-1, 0]),
        ([("a.json", b'{"width": 3}')], None),
    ],
)
def test_labels(tmp_path, files, labels):
    data = load(write_tar(tmp_path / "s.tar", [("a.png", png(0)), ("b.png", png(1)), *files]))
    assert (data.train.labels is None and labels is None) or data.train.labels.tolist() == labels


def test_broken_images_are_skipped_and_named(tmp_path, capsys):
    files = [(f"{i}.png", png(i)) for i in range(6)] + [("broken.png", b"nothing")]
    assert len(load(write_tar(tmp_path / "s.tar", files)).train) == 6
    assert "skipped '" in (message := capsys.readouterr().err) and "s.tar/broken.png" in message


def test_a_broken_image_is_an_error_where_every_sample_needs_a_row(tmp_path):
    files = [(f"{i}.png", png(i)) for i in range(6)] + [("broken.png", b"nothing")]
    shard = write_tar(tmp_path / "s.tar", files)
    run = imix.pretrain(shard, QUICK, progress=False)
    with pytest.raises(InputError, match=r"^1 files in .*s\.tar cannot be decoded, but each needs a row"):
        imix.embed(run, shard, tmp_path / "z.parquet")
    assert not (tmp_path / "z.parquet").exists()


def test_large_integers_in_json_files_stay_different_classes(tmp_path):
    labels = (2**53, 2**53 + 1, 0.0)
    files = [file for i, y in enumerate(labels) for file in ((f"{i}.png", png(i)), (f"{i}.json", str(y).encode()))]
    assert load(write_tar(tmp_path / "s.tar", files)).train.labels.tolist() == [1, 2, 0]


def test_blocks_are_consecutive_samples_of_a_shard(monkeypatch):
    monkeypatch.setattr(shards, "SAMPLES_PER_BLOCK", 2)
    members = [Member(Path(shard), str(i), 0, 1) for shard, n in (("a", 3), ("b", 2), ("c", 1)) for i in range(n)]
    assert shards._blocks(members).tolist() == [0, 0, 1, 2, 2, 3]


def test_a_damaged_shard_is_named_and_nothing_is_written(folder, tmp_path):
    content = (folder / "001.tar").read_bytes()
    (folder / "001.tar").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"001\.tar"):
        imix.pretrain(folder, QUICK, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_images_and_audio_in_the_same_shards_are_refused(folder):
    write_tar(folder / "003.tar", [("a.wav", b"RIFF")])
    with pytest.raises(
        InputError, match=r"contains images and audio files: .*000\.tar/00000\.png and .*003\.tar/a\.wav"
    ):
        load(folder)


def test_options_that_do_not_apply_are_refused(folder):
    with pytest.raises(
        InputError, match=r"`label` only applies to tables.*tar shards, whose \.cls files are the labels"
    ):
        load(folder, DataSettings(label="y"))
    assert load(folder, DataSettings(image_size=8)).train.shape == (3, 8, 8)


def test_shards_with_test_files_of_another_type_are_refused(folder, tmp_path):
    np.savetxt(tmp_path / "t.csv", np.ones((3, 2)))
    with pytest.raises(InputError, match=r"must have files of the same type as 000\.tar"):
        load(folder, DataSettings(test=str(tmp_path / "t.csv")))
