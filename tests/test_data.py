"""Data at the border: names, files, arrays, labels, and what is wrong with them."""

import shutil
import warnings

import numpy as np
import pandas
import pytest
import soundfile
import torch
from PIL import Image
from scipy import sparse

import imix
from imix import InputError, Reading, Settings
from imix.data import FOLDERS, NAMED, Tensors, load, read_as_before, ways
from imix.data.catalogue import CATALOGUE
from imix.data.standardise import Standardise


def test_digits_are_split_once_and_for_all():
    data = load("digits")
    assert (len(data.train), len(data.test), data.train.shape, data.train.classes) == (1297, 500, (1, 8, 8), 10)
    assert torch.equal(data.train.inputs, load("digits").train.inputs)
    assert data.train.inputs.min() >= 0 and data.train.inputs.max() <= 1


def test_npy_and_npz_files_are_read(tmp_path):
    x, y = np.arange(24.0).reshape(6, 4), np.array(list("bacbac"))
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "d.npz", x=x, y=y, x_test=x[:2], y_test=np.array(["c", "a"]))
    assert torch.equal(load(tmp_path / "x.npy").train.inputs, torch.from_numpy(x).float())
    data = load(str(tmp_path / "d.npz"))
    assert data.train.labels.tolist() == [1, 0, 2, 1, 0, 2]
    assert data.test.labels.tolist() == [2, 0]


@pytest.mark.parametrize("name", ["x.NPY", "x.Npz"])
def test_files_of_arrays_may_be_named_in_capitals(tmp_path, name):
    x = np.arange(24.0).reshape(6, 4)
    with open(tmp_path / name, "wb") as file:
        np.save(file, x) if name == "x.NPY" else np.savez(file, x=x)
    assert torch.equal(load(tmp_path / name).train.inputs, torch.from_numpy(x).float())


def test_bytes_become_unit_interval_and_everything_float32():
    assert load(np.full((2, 3), 255, np.uint8)).train.inputs.unique().item() == 1.0
    for dtype in (np.int64, np.float16, np.float64, bool):
        assert load(np.ones((2, 3), dtype)).train.inputs.dtype == torch.float32


def test_the_callers_array_is_not_changed_by_training():
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    before = x.copy()
    imix.pretrain(x, Settings(epochs=1, batch_size=8, masking=0.5), progress=False)
    assert np.array_equal(x, before)


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        ("nowhere.npy", None, "no data set or file 'nowhere.npy'.*known names: digits"),
        ("imagenet22k", None, "no data set or file 'imagenet22k'.*digits"),
        (np.ones((4, 2)), [0, 1], r"4 samples of the data need labels of shape \(4,\); got \(2,\)"),
        (np.ones((4, 2)), np.ones((4, 1)), r"need labels of shape \(4,\); got \(4, 1\)"),
        (
            np.array([[[0, 1]], [[np.nan, 2]], [[np.inf, 0]]]),
            None,
            r"2 values that are NaN, .*; the first is nan at \[1, 0, 0\]",
        ),
        (np.array([[0, 1], [np.nan, 2], [np.inf, 0]]), None, "column '0' .* has 1 infinite values, the first in row 2"),
        (np.full((2, 2), 1e300), None, "too large"),
        (np.ones((4, 0)), None, r"got shape \(4, 0\)"),
        (np.ones((4, 2)), [0, 1, 0.5, 1], r"labels are classes, and those of the data are numbers such as 0\.5"),
        (np.ones((4, 2)), [0, 1, np.inf, 1], "numbers such as inf"),
        (None, None, "there is no data"),
        (torch.eye(4).to_sparse(), None, r"give x\.to_dense"),
        (sparse.eye(4).tocsr(), None, r"give x\.toarray"),
        (object(), None, "must be numbers; got object"),
        (np.ones((2, 2)), [np.nan, np.nan], "none of the samples of the data has a label"),
        (np.ones((3, 2)), np.array(["a", None, 1], dtype=object), "cannot be sorted"),
        ([torch.ones(3), torch.ones(3)], None, "ambiguous"),
        (torch.ones(3, 2, dtype=torch.complex64), None, "complex"),
        (np.ones(5), None, r"first axis, \(N, \.\.\.\); got shape \(5,\)"),
        (np.array([["a", "b"]]), None, "must be numbers"),
        (np.array([[1, "b"]], dtype=object), None, "must be numbers; got an array of object; rows with text .* frame"),
        (np.ones((0, 3)), None, "no samples"),
        ((np.ones((4, 2)), np.ones((3, 2))), None, r"same number of samples; got \[4, 3\]"),
        ("digits", [1, 2], "brings its own"),
        (Tensors(torch.ones(2, 3)), [0, 1], "labels belong to arrays and frames; Tensors brings its own"),
        (load(np.ones((2, 3))), [0, 1], "labels belong to arrays and frames; Data brings its own"),
    ],
)
def test_data_that_cannot_be_used_is_refused_by_name(data, labels, message):
    with pytest.raises(InputError, match=message):
        load(data, labels=labels)


def test_data_that_was_read_is_not_read_another_way():
    reading = Reading(fraction=0.5)
    data = load(np.ones((8, 2)), reading=reading)
    assert load(data) is load(data, reading) is data
    with pytest.raises(InputError, match="how to read belongs to data that is to be read, and given is"):
        load(data, Reading(fraction=0.1))


@pytest.fixture
def places(tmp_path):
    """A folder of images, one of sounds, and files, by what they are."""
    for name in ("pictures", "waves"):
        (tmp_path / name / "cats").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "pictures" / "cats" / "1.png")
    soundfile.write(tmp_path / "waves" / "cats" / "1.wav", np.zeros(800), 8000)
    frame = pandas.DataFrame({"a": [0.5, 1.5], "y": [0, 1]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", frame.to_numpy())
    return {path.name: path for path in tmp_path.iterdir()} | {"frame": frame, "rows": frame.to_numpy()}


TABLE, SOUNDS = {"label": "y", "columns": {"a": "drop"}}, {"seconds": 0.5, "rate": 8000, "mels": 20}
WAYS = TABLE | SOUNDS | {"header": "yes", "image_size": 8, "data_dir": "."}
BELONG = {
    "t.csv": {*TABLE, "header"},
    "t.parquet": {*TABLE},
    "t.npy": {*TABLE},
    "frame": {*TABLE},
    "rows": {*TABLE},
    "pictures": {"image_size"},
    "waves": {*SOUNDS},
    "digits": {"data_dir"},
    "cifar10": {"data_dir"},
    "imagenet": {"data_dir", "image_size"},
    "speech_commands": {"data_dir", *SOUNDS},
    "covtype": {"data_dir", "columns"},
}


@pytest.mark.parametrize("name", BELONG)
@pytest.mark.parametrize("way", WAYS)
def test_a_way_of_reading_that_does_not_belong_to_the_data_is_refused_by_name(places, name, way):
    data, reading = places.get(name, name), Reading(**{way: WAYS[way]})
    if way in BELONG[name]:
        ways.check_ways(data, reading)
        return
    with pytest.raises(InputError, match=rf"^{way} .*; ('.*{name}'|the data) is (an?|of) "):
        load(data, reading)


def test_what_is_refused_says_what_the_data_is(places):
    for data, reading, said in [
        (
            places["pictures"],
            Reading(label="y"),
            f"label names a column of a table; '{places['pictures']}' is a folder of images, whose subfolders are its "
            "classes",
        ),
        ("digits", Reading(label="y"), "'digits' is a named set of images, which brings its classes"),
        (
            places["waves"],
            Reading(image_size=8),
            "image_size is for folders of images; '.*waves' is a folder of sounds$",
        ),
        (np.ones((4, 3, 8, 8)), Reading(label="0"), r"the data is an array of shape \(4, 3, 8, 8\)"),
        ((np.ones((4, 2)), np.ones((4, 3))), Reading(label="0"), "the data is of several fields"),
        (Tensors(torch.ones(4, 2)), Reading(columns={"0": "drop"}), "the data is a Source"),
    ]:
        with pytest.raises(InputError, match=said):
            load(data, reading)
        with pytest.raises(InputError, match=said):
            imix.pretrain(data, reading=reading, progress=False)


def test_what_torch_loads_one_by_one_is_refused_with_what_to_give_instead():
    samples = torch.utils.data.TensorDataset(torch.randn(8, 3))
    for data in (samples, torch.utils.data.DataLoader(samples)):
        with pytest.raises(InputError, match="as one tensor"):
            load(data)


def test_labels_are_given_by_name():
    with pytest.raises(InputError, match="labels are given by name; got list"):
        load(np.ones((2, 3)), [0, 1])


def test_every_named_data_set_has_its_ways_of_reading():
    assert {name for name, known in CATALOGUE.items() if known.kind in ways.NAMED} == NAMED.keys() | FOLDERS.keys()


def test_what_a_run_remembers_and_has_no_meaning_for_the_data_is_passed_over(places):
    reading = Reading(**SOUNDS, header="no", image_size=8, data_dir=".")
    for data in ("digits", np.ones((4, 3, 8, 8)), places["t.parquet"], Tensors(torch.ones(4, 2))):
        assert len(read_as_before(data, reading).train) == len(load(data).train)
    assert read_as_before(places["pictures"], Reading(label="y")).train.shape == (3, 8, 8)


def test_data_that_is_not_there_is_refused_as_that_whatever_the_way_of_reading(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no data set or file"):
        load(tmp_path / "nowhere", Reading(label="y"))
    with pytest.raises(InputError, match=r"no images .* and no sounds"):
        load(tmp_path / "empty", Reading(seconds=1.0))


def test_arrays_may_be_labelled_in_part():
    for labels in ([2.0, np.nan, 0.0, 2.0], np.array([2, None, 0, 2], dtype=object)):
        data = load(np.ones((4, 2)), labels=labels)
        assert data.train.labels.tolist() == [1, -1, 0, 1]
        assert list(data.class_names) == ["0", "2"]


def test_labels_of_bytes_are_names():
    data = load(np.ones((4, 2)), labels=np.array([b"dog", b"", "kätzchen".encode(), b"dog"]))
    assert data.train.labels.tolist() == [0, -1, 1, 0]
    assert list(data.class_names) == ["dog", "kätzchen"]
    assert list(load(np.ones((2, 2)), labels=np.array([b"a", b"\xff"])).class_names) == ["\\xff", "a"]


@pytest.mark.parametrize("columns", [["id"], "id", 7])
def test_columns_that_are_no_dict_are_refused(columns):
    with pytest.raises(InputError, match="columns must be a dict of names and kinds; got "):
        Reading(columns=columns)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"milestones": "60"}, "milestones must be a list; got '60'"),
        ({"milestones": ("a",)}, "each of milestones must be a whole number; got 'a'"),
        ({"milestones": [60, 80.5]}, "each of milestones must be a whole number; got 80.5"),
        ({"milestones": (True,)}, "each of milestones must be a whole number; got True"),
        ({"augment_columns": (3,)}, "each of augment_columns must be a name; got 3"),
    ],
)
def test_each_of_several_values_is_of_its_kind(settings, message):
    with pytest.raises(InputError, match=message):
        Settings(schedule="step", **settings)


def test_several_values_may_come_as_a_list_and_a_name_alone():
    settings = Settings(milestones=[np.int64(60), 80], augment_columns="numeric")
    assert settings.milestones == (60, 80) and type(settings.milestones[0]) is int
    assert settings.augment_columns == ("numeric",)


def test_files_that_cannot_be_read_are_refused_by_name(tmp_path):
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY broken")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "table.xlsx").write_text("no")
    np.save(tmp_path / "objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "other.npz", images=np.ones((2, 2)))
    np.savez(tmp_path / "unseen.npz", x=np.ones((2, 2)), y=[0, 1], x_test=np.ones((1, 2)), y_test=[7])
    for name in ("broken.npy", "empty.npz", "table.xlsx", "objects.npy"):
        with pytest.raises(InputError, match=f"cannot read .*{name}"):
            load(tmp_path / name)
    with pytest.raises(InputError, match=r"needs an array 'x'.*it has \['images'\]"):
        load(tmp_path / "other.npz")
    with pytest.raises(InputError, match="has labels that the training samples have not"):
        load(tmp_path / "unseen.npz")


def test_a_file_of_another_format_or_shape_is_refused(tmp_path):
    x = np.ones((4, 3))
    with open(tmp_path / "npy.npz", "wb") as file:
        np.save(file, x)
    np.savez(tmp_path / "shapes.npz", x=x, x_test=np.ones((2, 5)))
    np.savez(tmp_path / "lonely.npz", x=x, y_test=[0, 1])
    for name, message in [
        ("npy", "another format"),
        ("shapes", r"\(5,\), training samples \(3,\)"),
        ("lonely", "no 'x_test'"),
    ]:
        with pytest.raises(InputError, match=message):
            load(tmp_path / f"{name}.npz")


def test_unusual_but_sound_arrays_are_taken():
    x = np.arange(12.0).reshape(4, 3)
    expected = torch.from_numpy(x).float()
    fixed = x.copy()
    fixed.flags.writeable = False
    for array in (x.astype(">f4"), x.astype(np.longdouble), np.asfortranarray(x), fixed, x.tolist()):
        assert torch.equal(load(array).train.inputs, expected)
    assert not load(expected.clone().requires_grad_()).train.inputs.requires_grad
    bytes_ = np.full((2, 3), 255, np.uint8)
    bytes_.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(bytes_).train.inputs.eq(1).all()


@pytest.mark.parametrize("scale", [1e25, 1e-25])
def test_standardise_neither_overflows_nor_underflows(scale):
    x = torch.randn(200, 2) * scale
    y = Standardise(2).fit(x)(x)
    assert y.std(0, correction=0).tolist() == pytest.approx([1, 1], rel=1e-3)


def test_nan_says_in_which_file_and_where(tmp_path):
    x = np.ones((5, 1, 4, 4), np.float32)
    x[3, 0, 2, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(InputError, match=r"x\.npy has 1 values that are NaN.* at \[3, 0, 2, 1\]"):
        load(tmp_path / "x.npy")


def test_a_supervised_method_without_labels_is_refused():
    for method in ("supclr", "supnpair", "supervised"):
        with pytest.raises(InputError, match=f"'{method}' needs labels"):
            imix.pretrain(np.ones((8, 2)), Settings(method=method, epochs=1), progress=False)


def test_a_table_given_to_cutmix_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match=r"\(N, F\) use MixUp"):
        imix.pretrain(np.ones((8, 2)), Settings(mix="cutmix", epochs=1), out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("shape", [(50, 3), (50, 3, 7), (50, 3, 4, 5)])
def test_standardise_brings_each_channel_to_mean_0_and_deviation_1(shape):
    x = torch.randn(shape) * torch.tensor([1e-3, 1.0, 1e4]).view(1, 3, *[1] * (len(shape) - 2)) + 5
    y = Standardise(3).fit(x)(x).double()
    axes = [axis for axis in range(y.dim()) if axis != 1]
    assert y.mean(axes).abs().max() < 1e-3
    assert (y.std(axes, correction=0) - 1).abs().max() < 1e-3


def test_a_constant_column_stays_finite():
    x = torch.full((10, 2), 1e7) + torch.tensor([0.0, 1.0]) * torch.randn(10, 1) * 100
    y = Standardise(2).fit(x)(x)
    assert torch.isfinite(y).all()
    assert y[:, 0].abs().max() == 0


@pytest.fixture
def pictures(tmp_path):
    """Two classes of eight images each, in a folder."""
    for number in range(16):
        place = tmp_path / "pictures" / ("cats" if number % 2 else "dogs")
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    return tmp_path / "pictures"


def test_the_parts_of_a_data_set_are_no_classes(pictures, tmp_path):
    for part in ("Train", "val"):
        shutil.copytree(pictures, tmp_path / "both" / part)
        shutil.copytree(pictures / "cats", tmp_path / "plain" / part)
    for folder in ("both", "plain"):
        with pytest.raises(InputError, match=r"has the parts Train, val, not classes: give '.*Train', and --test"):
            load(tmp_path / folder)
    data = load(tmp_path / "both" / "Train", Reading(test=str(tmp_path / "both" / "val")))
    assert data.class_names == ["cats", "dogs"] and len(data.test) == 16


def test_a_linked_class_does_not_take_the_name_of_the_real_one(pictures):
    (pictures / "a link").symlink_to(pictures / "cats")
    assert load(pictures).class_names == ["cats", "dogs"]


def test_files_of_other_kinds_and_single_ones_are_spoken_of(pictures, capsys):
    for number in range(3):
        (pictures / "cats" / f"{number}.HEIC").write_bytes(b"x")
    assert len(load(pictures).train) == 16
    assert "passed over: 3 .heic" in capsys.readouterr().err
    with pytest.raises(InputError, match="single file; give the folder"):
        load(pictures / "cats" / "1.png")
    with pytest.raises(InputError, match="name of the data is empty"):
        load("")


def test_colours_in_another_unit_are_refused(pictures):
    run = imix.pretrain(pictures, Settings(epochs=1, batch_size=8, encoder="small"), progress=False)
    x = np.stack([np.asarray(Image.open(path)) for path in sorted(pictures.glob("*/*.png"))]).transpose(0, 3, 1, 2)
    expected = imix.embed(run, x)
    np.testing.assert_allclose(imix.embed(run, x / 255), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match=r"values up to 255, far from the run's; colours are bytes, or in 0\.\.1"):
        imix.embed(run, x.astype(np.float32))


def test_one_class_is_nothing_to_learn_from():
    with pytest.raises(InputError, match="of one class"):
        imix.pretrain(torch.randn(32, 4), Settings(method="supervised", epochs=1), labels=[1] * 32, progress=False)
