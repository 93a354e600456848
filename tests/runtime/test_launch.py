"""Joining the ranks started by torchrun."""

import os
import signal
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from imix import InputError
from imix.runtime import launch


def test_ranks_are_not_joined_twice(ranks):
    assert not any(result["collectives"]["joined again"] for result in ranks)


def test_a_single_process_joins_no_ranks(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with launch.join_ranks() as joined:
        assert not joined


@pytest.mark.parametrize(
    ("launcher", "signals"), [(os.getppid(), []), (None, []), (1 << 22, [(os.getpid(), signal.SIGTERM)])]
)
def test_a_rank_stops_itself_if_its_launcher_is_no_longer_its_parent(monkeypatch, launcher, signals):
    """The launcher is None unless it is torchrun: a shell may start ranks in the background and end."""
    sent, stopped = [], threading.Event()
    monkeypatch.setattr(os, "kill", lambda *args: sent.append(args))
    monkeypatch.setattr(launch, "HEARTBEAT_SECONDS", 0)
    store = SimpleNamespace(add=lambda *_: stopped.set())
    launch._send_heartbeats(store, stopped, 1, launcher)
    assert sent == signals


RANK_1_OF_2 = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("WORLD_SIZE", value) for value in ("", "two", "0", "-1", "1.5", "9" * 5000, "\u0662")),
        *(("RANK", value) for value in (None, "", "one", "-1", "2")),
        *(("MASTER_PORT", value) for value in (None, "", "http", "99999")),
        *(("MASTER_ADDR", value) for value in (None, "")),
        *(("IMIX_RANK_TIMEOUT", value) for value in ("-3", "0", "nan", "inf", "1e300")),
    ],
)
def test_an_invalid_environment_variable_is_rejected_by_name(monkeypatch, name, value):
    for each, valid in (RANK_1_OF_2 | {name: value}).items():
        monkeypatch.delenv(each, raising=False)
        if valid is not None:
            monkeypatch.setenv(each, valid)
    with pytest.raises(InputError, match=name) as error, launch.join_ranks():
        pass
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(("rank", "is_valid"), [(None, True), ("0", True), ("5", False), ("one", False)])
def test_the_only_rank_is_rank_0(monkeypatch, rank, is_valid):
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    with nullcontext() if is_valid else pytest.raises(InputError, match="RANK must be"), launch.join_ranks() as joined:
        assert not joined


@pytest.mark.parametrize("value", [None, "", "first", "-1"])
def test_an_invalid_local_rank_is_rejected_by_name_if_there_are_gpus(monkeypatch, value):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    for each, valid in RANK_1_OF_2.items():
        monkeypatch.setenv(each, valid)
    if value is not None:
        monkeypatch.setenv("LOCAL_RANK", value)
    with pytest.raises(InputError, match="LOCAL_RANK must be an integer at least 0"), launch.join_ranks():
        pass
