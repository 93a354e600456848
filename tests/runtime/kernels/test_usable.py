"""Whether Triton kernels can be used, and the fallback to plain torch."""

import pytest
import torch

from imix.runtime import kernels


def test_kernels_that_cannot_be_built_are_replaced_by_plain_torch_with_a_warning(monkeypatch):
    pytest.importorskip("triton")

    def fail(device):
        raise RuntimeError("Failed to find C compiler\nand more")

    monkeypatch.setattr("imix.runtime.kernels.probe.works", fail)
    kernels.usable.cache_clear()
    with pytest.warns(UserWarning, match="using plain torch: Failed to find C compiler$"):
        assert not kernels.usable(torch.device("cuda"))
    kernels.usable.cache_clear()
    assert not kernels.usable(torch.device("cpu"))
