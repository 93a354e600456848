"""`Source`, `TensorSource` and `take_fraction`."""

import numpy as np
import pytest
import torch

from imix import DataSettings, InputError
from imix.data import load
from tests.data.media.helpers import write_image


def test_a_fraction_is_taken_of_every_class(tmp_path):
    for i in range(6):
        write_image(tmp_path / "cat" / f"{i}.png")
        write_image(tmp_path / "dog" / f"{i}.png")
    data = load(tmp_path, DataSettings(fraction=0.5))
    assert data.train.labels.bincount().tolist() == [3, 3]
    assert len(data.sample_names) == 6 and all("cat" in name for name in data.sample_names[:3])
    x, y = np.arange(200.0).reshape(100, 2), [0] * 90 + [1] * 10
    part = load(x, DataSettings(fraction=0.1), labels=y).train
    assert (part.labels.bincount().tolist(), len(load(x, DataSettings(fraction=0.1)).train)) == ([9, 1], 10)
    assert torch.equal(part.inputs, load(x, DataSettings(fraction=0.1), labels=y).train.inputs)
    with pytest.raises(InputError, match="`fraction` must be above 0 and at most 1; got 0"):
        DataSettings(fraction=0)
