"""Fixtures of the fault tests."""

import signal

import pytest


@pytest.fixture(autouse=True)
def default_hangup():
    """Commands that a test starts react to SIGHUP, even if the tests run under nohup."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)
