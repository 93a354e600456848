"""Data options that do not apply to the data are an error."""

import numpy as np
import pandas
import pytest
import soundfile
import torch
from PIL import Image
from torch.utils.data import TensorDataset

import imix
from imix import DataSettings, InputError
from imix.data import TensorSource, load
from imix.data.named import DATASETS
from imix.data.options import APPLIES_TO, check_options

TABLE_OPTIONS = {"label": "y", "columns": {"a": "drop"}}
AUDIO_OPTIONS = {"seconds": 0.5, "sample_rate": 8000, "n_mels": 20}
IMAGE_OPTIONS = {"image_size": 8, "channels": 1}
OPTIONS = TABLE_OPTIONS | AUDIO_OPTIONS | IMAGE_OPTIONS | {"path_column": "a", "header": "yes", "data_dir": "."}
ALLOWED = {
    "t.csv": {*TABLE_OPTIONS, "path_column", "header"},
    "t.parquet": {*TABLE_OPTIONS, "path_column"},
    "t.npy": {*TABLE_OPTIONS},
    "frame": {*TABLE_OPTIONS, "path_column"},
    "array": {*TABLE_OPTIONS},
    "images": {*IMAGE_OPTIONS},
    "paths": {*IMAGE_OPTIONS},
    "torch": {"label"},
    "audio": {*AUDIO_OPTIONS},
    "digits": {"data_dir"},
    "cifar10": {"data_dir"},
    "imagenet": {"data_dir", "image_size"},
    "speech_commands": {"data_dir", *AUDIO_OPTIONS},
    "covtype": {"data_dir", "columns"},
}


@pytest.fixture
def examples(tmp_path):
    """Data of each kind that is not a named data set, by the keys of ALLOWED."""
    for name in ("images", "audio"):
        (tmp_path / name / "cats").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "cats" / "1.png")
    soundfile.write(tmp_path / "audio" / "cats" / "1.wav", np.zeros(800), 8000)
    frame = pandas.DataFrame({"a": [0.5, 1.5], "y": [0, 1]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", frame.to_numpy())
    in_memory = {"frame": frame, "array": frame.to_numpy(), "paths": [tmp_path / "images" / "cats" / "1.png"]}
    in_memory["torch"] = TensorDataset(torch.ones(4, 2))
    return {path.name: path for path in tmp_path.iterdir()} | in_memory


@pytest.mark.parametrize("name", ALLOWED)
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_does_not_apply_to_the_data_is_an_error(examples, name, option):
    data, data_settings = examples.get(name, name), DataSettings(**{option: OPTIONS[option]})
    if option in ALLOWED[name]:
        check_options(data, data_settings)
        return
    with pytest.raises(InputError, match=rf"^`{option}` only applies to .*; ('.*{name}'|the data) is an? "):
        load(data, data_settings)


def test_the_error_describes_the_data(examples):
    for data, data_settings, message in [
        (
            examples["images"],
            DataSettings(label="y"),
            f"`label` only applies to tables, .*; '{examples['images']}' is a folder of images, whose subfolders are "
            "the classes",
        ),
        ("digits", DataSettings(label="y"), r"'digits' is a named data set \(images\), which includes its classes"),
        (
            examples["audio"],
            DataSettings(image_size=8),
            "`image_size` only applies to image files; '.*audio' is a folder of audio files$",
        ),
        (np.ones((4, 3, 8, 8)), DataSettings(label="0"), r"the data is an array of shape \(4, 3, 8, 8\)"),
        ((np.ones((4, 2)), np.ones((4, 3))), DataSettings(label="0"), "the data is a tuple of fields"),
        (TensorSource(torch.ones(4, 2)), DataSettings(columns={"0": "drop"}), "the data is a Source"),
    ]:
        with pytest.raises(InputError, match=message):
            load(data, data_settings)
        with pytest.raises(InputError, match=message):
            imix.pretrain(data, data_settings=data_settings, progress=False)


def test_options_that_do_not_apply_are_ignored_if_not_strict(examples):
    data_settings = DataSettings(**AUDIO_OPTIONS, header="no", image_size=8, data_dir=".")
    for data in ("digits", np.ones((4, 3, 8, 8)), examples["t.parquet"], TensorSource(torch.ones(4, 2))):
        assert len(load(data, data_settings, strict=False).train) == len(load(data).train)
    assert load(examples["images"], DataSettings(label="y"), strict=False).train.shape == (3, 8, 8)


def test_options_of_named_data_sets_are_checked_options():
    assert all(set(record.options) <= set(APPLIES_TO) for record in DATASETS.values())


def test_options_of_files_apply_to_tables_of_files(examples, tmp_path):
    content = (examples["images"] / "cats" / "1.png").read_bytes()
    frame = pandas.DataFrame({"image": [content], "path": ["images/cats/1.png"]})
    frame.to_parquet(tmp_path / "files.parquet")
    for data in (frame, tmp_path / "files.parquet"):
        assert load(data, DataSettings(image_size=4)).train.shape == (3, 4, 4)
    data_settings = DataSettings(path_column="path", channels=1)
    assert load(tmp_path / "files.parquet", data_settings).train.shape == (1, 8, 8)


def test_labels_of_array_files_may_be_missing(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.ones((6, 2)), y=[0, 1, -1] * 2)
    data = load(tmp_path / "t.npz", DataSettings(missing_label="-1"))
    assert data.train.labels.tolist() == [0, 1, -1] * 2
