"""Helpers that start training runs and commands in separate processes and kill them at chosen moments.

Processes are forked from a server that has already imported everything, so that starting one takes tenths of a second.
"""

import io
import itertools
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from imix import Settings, files
from imix.run import checkpoint, load_run
from imix.run.config import read_config

LONG = os.environ.get("IMIX_CHAOS") == "long"  # the long form takes an hour, the short form minutes
EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_RESUMABLE, EXIT_INTERRUPTED = 2, 1, 75, 130
METHODS = ("npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised")
SMALL = Settings(
    epochs=20 if LONG else 4, batch_size=16, encoder="mlp:16-16", device="cpu", checkpoint_minutes=0, queue=40
)
TOTAL_STEPS = 4 * SMALL.epochs

FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(
    [
        *("imix.train.pretrain", "imix.cli", "imix.evaluation", "safetensors.torch", "pyarrow.csv", "pyarrow.parquet"),
        *("sklearn.preprocessing", "PIL.Image", "soundfile", "scipy.signal"),
    ]
)


def small_data() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs (70, 6) and labels (70,); an epoch of `SMALL` has four steps."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(70, 6, generator=generator), torch.randint(3, (70,), generator=generator)


def small_settings(method: str, **changes: Any) -> Settings:
    """The settings `SMALL` with another method."""
    return replace(SMALL, method=method, **changes)


# --- training runs that are killed ------------------------------------------------------------------------------------

AFTER_STEP = "after a step"
DURING_CHECKPOINT = "half of a checkpoint is written"
BEFORE_RENAME = "a checkpoint is written but not renamed"
AFTER_RENAME = "a checkpoint is renamed"
DURING_RECORD = "half of a record is written"
EVENTS = (AFTER_STEP, DURING_CHECKPOINT, BEFORE_RENAME, AFTER_RENAME, DURING_RECORD)


class Kill(NamedTuple):
    """When to kill a process: the `count`-th time that `event` happens on `rank`.

    The event is one of `EVENTS`, or a file name: then the file is written but not yet renamed.
    """

    event: str
    count: int
    rank: int = 0


def random_kills(seed: str, ranks: int, n: int) -> list[Kill]:
    """Draw n kills from a seed."""
    rng = random.Random(seed)
    kills = []
    for _ in range(n):
        event = rng.choice(EVENTS)
        rank = rng.randrange(ranks) if event == AFTER_STEP else 0
        # With several ranks a checkpoint is written only every few steps; there are few records.
        max_count = {DURING_RECORD: 2}.get(event, 7 if ranks == 1 or event == AFTER_STEP else 2)
        kills.append(Kill(event, rng.randint(1, max_count), rank))
    return kills


def install(kill: Kill) -> None:
    """Patch the library so that this process is killed as described."""
    import imix.train.logs
    import imix.train.step

    counter = itertools.count(1)

    def is_due() -> bool:
        return next(counter) == kill.count

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if kill.event == AFTER_STEP:
        run = imix.train.step.TrainingStep.run

        def run_and_die(*args: Any) -> Any:
            loss = run(*args)
            return die() if is_due() else loss

        imix.train.step.TrainingStep.run = run_and_die  # type: ignore[method-assign]
    elif kill.event == DURING_CHECKPOINT:
        save = torch.save

        def save_half_and_die(state: Any, file: Any) -> None:
            buffer = io.BytesIO()
            save(state, buffer)
            dying = is_due()
            file.write(buffer.getvalue()[: buffer.tell() // (2 if dying else 1)])
            if dying:
                file.flush()
                die()

        torch.save = save_half_and_die  # type: ignore[assignment]
    elif kill.event == DURING_RECORD:
        append = imix.train.logs.append_jsonl

        def append_half_and_die(path: Path, record: dict[str, Any]) -> None:
            if is_due():
                with open(path, "a") as file:
                    file.write(json.dumps(record)[:20])
                die()
            append(path, record)

        imix.train.logs.append_jsonl = append_half_and_die
    else:
        name = "checkpoint.pt" if kill.event in EVENTS else kill.event
        rename = os.replace

        def rename_and_die(source: Any, target: Any) -> None:
            dying = Path(target).name == name and is_due()
            if not dying or kill.event == AFTER_RENAME:
                rename(source, target)
            if dying:
                die()

        os.replace = rename_and_die  # type: ignore[assignment]


def _pretrain_rank(
    folder: Path, settings: Settings, kill: Kill | None, rank: int, world: int, port: int, options: dict[str, Any]
) -> None:
    """Train as one rank; the target of the processes that `pretrain` starts."""
    import imix
    import imix.runtime.launch

    torch.set_num_threads(1)
    os.environ |= {"WORLD_SIZE": str(world), "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    imix.runtime.launch.HEARTBEAT_SECONDS = 0.2
    if kill is not None and kill.rank == rank:
        install(kill)
    x, y = small_data()
    imix.pretrain(x, settings, labels=y, out=folder, progress=False, **options)


def pretrain(folder: Path, settings: Settings, ranks: int = 1, kill: Kill | None = None, **options: Any) -> list[int]:
    """Train in one process per rank, with resume=True by default; if one rank is killed, kill the others too.

    Returns the exit codes: -9 for a process that was killed.
    """
    port = free_port() if ranks > 1 else 0
    options = {"resume": True} | options
    processes = [
        FORKSERVER.Process(target=_pretrain_rank, args=(folder, settings, kill, rank, ranks, port, options))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    deadline = time.monotonic() + 60
    while any(process.exitcode is None for process in processes):
        assert time.monotonic() < deadline, "a rank hangs"
        if any(process.exitcode == -signal.SIGKILL for process in processes):
            for process in processes:
                process.kill()
        time.sleep(0.005)
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def free_port() -> int:
    """Return a TCP port that is not in use."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def assert_readable(folder: Path) -> None:
    """Assert that every file of a run folder is complete, even if the run was killed."""
    if not (folder / "config.json").exists():
        assert not (folder / "checkpoint.pt").exists()
        return
    read_config(folder)
    if (folder / "checkpoint.pt").exists():
        checkpoint.load(folder / "checkpoint.pt")
    if (folder / "encoder.safetensors").exists():
        load_run(folder)
    if (folder / "metrics.jsonl").exists():
        lines = (folder / "metrics.jsonl").read_bytes().split(b"\n")[:-1]
        steps = [json.loads(line)["step"] for line in lines]
        assert steps == sorted(set(steps)), "duplicate steps"


def assert_same_result(folder: Path, reference: Path) -> None:
    """Assert that encoder, checkpoint and metrics of two runs agree bit for bit."""
    assert (folder / "encoder.safetensors").read_bytes() == (reference / "encoder.safetensors").read_bytes()
    actual, expected = (checkpoint.load(path / "checkpoint.pt") for path in (folder, reference))
    assert (actual["epoch"], actual["step"]) == (expected["epoch"], expected["step"])
    different = [name for name, value in actual["learner"].items() if not torch.equal(value, expected["learner"][name])]
    assert different == []
    momenta = [
        [entry["momentum_buffer"] for entry in state["optimizer"]["state"].values()] for state in (actual, expected)
    ]
    assert all(map(torch.equal, *momenta))
    assert _metrics_without_times(folder) == _metrics_without_times(reference)


def _metrics_without_times(folder: Path) -> list[dict[str, Any]]:
    records = files.read_jsonl(folder / "metrics.jsonl")
    return [{name: value for name, value in record.items() if name != "views_per_second"} for record in records]


def count_records(folder: Path) -> int:
    """Return how many records a run has written to metrics.jsonl."""
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


# --- the command line -------------------------------------------------------------------------------------------------


class CommandResult(NamedTuple):
    """Exit code and output of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """The last line of stderr."""
        return self.stderr.splitlines()[-1]


def _run_main(arguments: Sequence[str], stdout: Path, stderr: Path, environment: dict[str, str], prepare: Any) -> None:
    for path, descriptor in ((stdout, 1), (stderr, 2)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdout, sys.stderr = (open(descriptor, "w", buffering=1) for descriptor in (1, 2))  # noqa: SIM115
    torch.set_num_threads(1)
    os.environ |= environment
    sys.argv = ["imix", *arguments]
    if prepare is not None:
        function, *args = prepare
        function(*args)
    from imix.cli import main

    try:
        main()
    except SystemExit as error:
        sys.stdout.flush()
        os._exit(error.code if isinstance(error.code, int) else 0 if error.code is None else 1)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()


class Command:
    """`imix ARGUMENTS` in a forked process.

    `prepare` is a function and its arguments; it is called in the new process before the command.
    """

    def __init__(
        self, arguments: Sequence[Any], folder: Path, environment: dict[str, str] | None = None, prepare: Any = None
    ) -> None:
        number = random.SystemRandom().randrange(10**9)
        self.stdout, self.stderr = folder / f".{number}.stdout", folder / f".{number}.stderr"
        words = [os.fsdecode(word) if isinstance(word, bytes) else str(word) for word in arguments]
        self.process = FORKSERVER.Process(
            target=_run_main, args=(words, self.stdout, self.stderr, environment or {}, prepare), daemon=True
        )
        self.process.start()

    def send_signal(self, signum: int) -> None:
        """Send a signal to the process."""
        os.kill(self.process.pid, signum)

    def wait(self, timeout: float = 60) -> CommandResult:
        """Wait until the command ends; fail if it takes longer than `timeout` seconds."""
        self.process.join(timeout)
        hangs = self.process.exitcode is None
        if hangs:
            self.process.kill()
            self.process.join()
        outputs = [path.read_text(errors="replace") if path.exists() else "" for path in (self.stdout, self.stderr)]
        for path in (self.stdout, self.stderr):
            path.unlink(missing_ok=True)
        assert not hangs, f"the command hangs; its output was {outputs}"
        return CommandResult(self.process.exitcode, *outputs)


def run_command(*arguments: Any, folder: Path, timeout: float = 60, **options: Any) -> CommandResult:
    """Run `imix ARGUMENTS` to its end."""
    return Command(arguments, folder, **options).wait(timeout)


def start_two_ranks(
    *arguments: Any, folder: Path, environment: dict[str, str] | None = None, **options: Any
) -> list[Command]:
    """Start `imix ARGUMENTS` as two ranks, without torchrun."""
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())} | (environment or {})
    return [Command(arguments, folder, common | {"RANK": rank, "LOCAL_RANK": rank}, **options) for rank in ("0", "1")]


def start_torchrun(*arguments: Any, restarts: int = 0) -> subprocess.Popen[str]:
    """Start `torchrun --nproc-per-node 2 -m imix ARGUMENTS`."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = [*torchrun, "--max-restarts", restarts, "-m", "imix", *arguments]
    return subprocess.Popen(
        [str(word) for word in words],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def child_pids(parent: int) -> list[int]:
    """Return the process ids of the children of a process."""
    children = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if int((path / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                children.append(int(path.name))
        except OSError:  # the process has ended
            continue
    return children


def is_running(pid: int) -> bool:
    """Whether a process has not ended. Its entry may stay until process 1, its new parent, removes it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def rank_pid(torchrun_pid: int, rank: int) -> int:
    """Return the process id of a rank that torchrun started."""
    for pid in child_pids(torchrun_pid):
        with suppress(OSError):  # the process has ended
            if f"\0LOCAL_RANK={rank}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                return pid
    raise AssertionError(f"torchrun has no rank {rank}")


def wait_until(condition: Callable[[], Any], timeout: float = 60, interval: float = 0.01) -> None:
    """Wait until a condition holds; fail after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {timeout} seconds"
        time.sleep(interval)
