"""Names that docstring examples use without importing them; few threads, so that tests can run side by side."""

import signal

import pytest
import torch

import imix

torch.set_num_threads(1)
signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # a shell's background ignores it, and so would what tests start


@pytest.fixture(autouse=True)
def _names_for_examples(doctest_namespace: dict[str, object]) -> None:
    torch.manual_seed(0)
    doctest_namespace.update(torch=torch, imix=imix)
