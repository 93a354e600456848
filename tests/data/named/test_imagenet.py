"""ImageNet and ImageNet-100."""

import pytest

from imix import DataSettings, InputError
from imix.data import load
from imix.data.named import imagenet
from tests.data.media.helpers import write_image


def test_imagenet_reads_train_and_val_and_imagenet100_draws_fixed_classes(tmp_path, monkeypatch, capsys):
    for part, count in (("train", 2), ("val", 1)):
        for number in range(8):
            for i in range(count):
                write_image(tmp_path / part / f"n{number:04d}" / f"{i}.png", size=(30, 40))
    data_settings = DataSettings(data_dir=str(tmp_path), image_size=16)
    full = load("imagenet", data_settings)
    assert (len(full.train), len(full.test), full.train.n_classes, full.name) == (16, 8, 8, "imagenet")
    with pytest.raises(InputError, match=r"needs at least 100 classes; .* has 8"):
        load("imagenet100", data_settings)
    monkeypatch.setattr(imagenet, "N_CLASSES", 3)
    subset = load("imagenet100", data_settings)
    assert (len(subset.train), len(subset.test), len(subset.class_names)) == (6, 3, 3)
    assert f"imagenet100: {' '.join(subset.class_names)}" in capsys.readouterr().err
    assert list(load("imagenet100", data_settings).class_names) == list(subset.class_names)
    with pytest.raises(InputError, match="imagenet needs `data_dir=FOLDER`"):
        load("imagenet")
    assert load("imagenet", DataSettings(data_dir=str(tmp_path))).train.shape == (3, 224, 224)
    with pytest.raises(InputError, match=r"needs the folders train and val .* in `data_dir` '.*nowhere'"):
        load("imagenet", DataSettings(data_dir=str(tmp_path / "nowhere")))
