"""Fixtures of the training tests."""

import pytest
import torch


@pytest.fixture(scope="module")
def table():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(70, 6, generator=generator), torch.randint(3, (70,), generator=generator)
