"""Pytest setup: one thread per test process, and the names that doctests use without importing them."""

import signal

import pytest
import torch

import imix

torch.set_num_threads(1)  # so that several test processes can run in parallel
# A shell starts background jobs with SIGINT ignored, and the processes that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, object]) -> None:
    torch.manual_seed(0)
    doctest_namespace.update(torch=torch, imix=imix)
