"""Pretraining and embedding on arrays and tensors."""

import numpy as np
import pytest
import torch
from PIL import Image

import imix
from imix import InputError, Settings
from tests.data.media.helpers import write_image


def test_training_does_not_change_the_array():
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    before = x.copy()
    imix.pretrain(x, Settings(epochs=1, batch_size=8, masking=0.5), progress=False)
    assert np.array_equal(x, before)


def test_a_supervised_method_without_labels_is_an_error():
    for method in ("supclr", "supnpair", "supervised"):
        with pytest.raises(InputError, match=f"'{method}' needs labels"):
            imix.pretrain(np.ones((8, 2)), Settings(method=method, epochs=1), progress=False)


def test_cutmix_on_a_table_is_an_error_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match=r"\(N, F\) use MixUp"):
        imix.pretrain(np.ones((8, 2)), Settings(mix="cutmix", epochs=1), out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


def test_a_supervised_method_with_one_class_is_an_error():
    with pytest.raises(InputError, match="belong to one class"):
        imix.pretrain(torch.randn(32, 4), Settings(method="supervised", epochs=1), labels=[1] * 32, progress=False)


def test_colors_with_another_range_than_the_run_are_an_error(tmp_path):
    for i in range(16):
        write_image(tmp_path / "images" / ("cats" if i % 2 else "dogs") / f"{i}.png", size=(12, 12))
    folder = tmp_path / "images"
    run = imix.pretrain(folder, Settings(epochs=1, batch_size=8, encoder="small"), progress=False)
    x = np.stack([np.asarray(Image.open(path)) for path in sorted(folder.glob("*/*.png"))]).transpose(0, 3, 1, 2)
    expected = imix.embed(run, x)
    np.testing.assert_allclose(imix.embed(run, x / 255), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match=r"values up to 2\d\d, far outside the run's range"):
        imix.embed(run, x.astype(np.float32))
