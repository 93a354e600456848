"""How the tests do harm: processes that are killed at chosen moments, and the command line as a process of its own.

Processes are forked from one that has imported everything, so that a run takes tenths of a second, not seconds.
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
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from imix import Settings, files
from imix.config import read_config
from imix.train import checkpoint

LONG = os.environ.get("IMIX_CHAOS") == "long"  # the form that takes an hour, not minutes
METHODS = ("npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised")
SMALL = Settings(
    epochs=20 if LONG else 4, batch_size=16, encoder="mlp:16-16", device="cpu", checkpoint_minutes=0, queue=40
)
STEPS = 4 * SMALL.epochs
TWO_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [
        *("imix.pretraining", "imix.cli", "imix.evaluation", "safetensors.torch", "pyarrow.csv", "pyarrow.parquet"),
        *("sklearn.preprocessing", "PIL.Image", "soundfile", "scipy.signal"),
    ]
)


def table() -> tuple[torch.Tensor, torch.Tensor]:
    """Seventy rows and their classes: four steps an epoch."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(70, 6, generator=generator), torch.randint(3, (70,), generator=generator)


class Death(NamedTuple):
    """A moment to be killed at: the so many-th time that this happens on that rank."""

    moment: str
    count: int
    rank: int = 0


MOMENTS = ("a step", "half a checkpoint", "a whole one not in its place", "one in its place", "half a line")


def deaths(seed: str, ranks: int, n: int) -> list[Death]:
    """Some moments, drawn from a seed."""
    draw = random.Random(seed)
    found = []
    for _ in range(n):
        moment = draw.choice(MOMENTS)
        rank = draw.randrange(ranks) if moment == "a step" else 0
        # With several ranks a checkpoint is written every few steps; of lines there are six.
        most = {"half a line": 2}.get(moment, 7 if ranks == 1 or moment == "a step" else 2)
        found.append(Death(moment, draw.randint(1, most), rank))
    return found


def die_at(death: Death) -> None:
    """Let this process be killed at that moment."""
    import imix.train.log
    import imix.train.step

    counter = itertools.count(1)

    def now() -> bool:
        return next(counter) == death.count

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if death.moment == "a step":
        take = imix.train.step.Step._take

        def step(*given: Any) -> Any:
            loss = take(*given)
            return die() if now() else loss

        imix.train.step.Step._take = step  # type: ignore[method-assign]
    elif death.moment == "half a checkpoint":
        save = torch.save

        def half(state: Any, file: Any) -> None:
            whole = io.BytesIO()
            save(state, whole)
            dying = now()
            file.write(whole.getvalue()[: whole.tell() // (2 if dying else 1)])
            if dying:
                file.flush()
                die()

        torch.save = half  # type: ignore[assignment]
    elif death.moment == "half a line":
        append = imix.train.log.append_line

        def line(path: Path, record: dict[str, Any]) -> None:
            if now():
                with open(path, "a") as file:
                    file.write(json.dumps(record)[:20])
                die()
            append(path, record)

        imix.train.log.append_line = line
    else:
        before = death.moment != "one in its place"
        name = death.moment if "." in death.moment else "checkpoint.pt"  # or another file, when it is to be put there
        put = os.replace

        def place(source: Any, target: Any) -> None:
            dying = Path(target).name == name and now()
            if not (dying and before):
                put(source, target)
            if dying:
                die()

        os.replace = place  # type: ignore[assignment]


def pretrain_here(
    folder: Path, settings: Settings, death: Death | None, rank: int, world: int, port: int, options: dict[str, Any]
) -> None:
    """What a killed process does: one rank of a run."""
    import imix
    import imix.ranks

    torch.set_num_threads(1)
    os.environ |= {"WORLD_SIZE": str(world), "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    imix.ranks.BEAT = 0.2
    if death is not None and death.rank == rank:
        die_at(death)
    x, y = table()
    imix.pretrain(x, settings, labels=y, out=folder, progress=False, **options)


def pretrain(folder: Path, settings: Settings, ranks: int = 1, death: Death | None = None, **options: Any) -> list[int]:
    """Train in processes of their own, resuming what is there; when one is killed, so are the others at once.

    Gives the exit codes, -9 for those that were killed.
    """
    port = free_port() if ranks > 1 else 0
    options = {"resume": True} | options
    started = [
        processes.Process(target=pretrain_here, args=(folder, settings, death, rank, ranks, port, options))
        for rank in range(ranks)
    ]
    for process in started:
        process.start()
    deadline = time.monotonic() + 60
    while any(process.exitcode is None for process in started):
        assert time.monotonic() < deadline, "a rank hangs"
        if any(process.exitcode == -signal.SIGKILL for process in started):
            for process in started:
                process.kill()
        time.sleep(0.005)
    for process in started:
        process.join()
    return [process.exitcode for process in started]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def check_readable(folder: Path) -> None:
    """A run folder that a run may have been killed in at any moment: what is there is whole."""
    if not (folder / "config.json").exists():
        assert not (folder / "checkpoint.pt").exists()
        return
    read_config(folder)
    if (folder / "checkpoint.pt").exists():
        checkpoint.load(folder / "checkpoint.pt")
    if (folder / "metrics.jsonl").exists():
        lines = (folder / "metrics.jsonl").read_bytes().split(b"\n")[:-1]
        steps = [json.loads(line)["step"] for line in lines]
        assert steps == sorted(set(steps)), "no doubles"


def same_result(folder: Path, undisturbed: Path) -> None:
    """Encoder, everything in the checkpoint and all records agree, bit for bit."""
    assert (folder / "encoder.safetensors").read_bytes() == (undisturbed / "encoder.safetensors").read_bytes()
    one, other = (checkpoint.load(place / "checkpoint.pt") for place in (folder, undisturbed))
    assert (one["epoch"], one["step"]) == (other["epoch"], other["step"])
    assert [name for name, value in one["learner"].items() if not torch.equal(value, other["learner"][name])] == []
    momenta = [[state["momentum_buffer"] for state in each["optimizer"]["state"].values()] for each in (one, other)]
    assert all(map(torch.equal, *momenta))
    kept = ("step", "epoch", "loss", "lr", "alignment", "uniformity", "rank", "nearest")
    records = [
        [{name: record.get(name) for name in kept} for record in files.read_lines(place / "metrics.jsonl")]
        for place in (folder, undisturbed)
    ]
    assert records[0] == records[1]


# --- the command line ------------------------------------------------------------------------------------------------


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str
    seconds: float


def _command(arguments: Sequence[str], out: Path, err: Path, environment: dict[str, str], prepare: Any) -> None:
    for path, stream in ((out, 1), (err, 2)):
        place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(place, stream)
        os.close(place)
    sys.stdout, sys.stderr = (open(stream, "w", buffering=1) for stream in (1, 2))  # noqa: SIM115
    torch.set_num_threads(1)
    os.environ |= environment
    sys.argv = ["imix", *arguments]
    if prepare is not None:
        prepare[0](*prepare[1:])
    from imix.cli import main

    try:
        main()
    except SystemExit as leaving:
        sys.stdout.flush()
        os._exit(leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()


class Command:
    """`imix ARGUMENTS` in a process of its own, forked; `prepare` is a function, and its arguments, called before."""

    def __init__(
        self, arguments: Sequence[Any], folder: Path, environment: dict[str, str] | None = None, prepare: Any = None
    ) -> None:
        number = random.SystemRandom().randrange(10**9)
        self.out, self.err = folder / f".{number}.out", folder / f".{number}.err"
        given = ([os.fsdecode(part) if isinstance(part, bytes) else str(part) for part in arguments],)
        self.process = processes.Process(
            target=_command, args=(*given, self.out, self.err, environment or {}, prepare), daemon=True
        )
        self.started = time.monotonic()
        self.process.start()

    def send(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.process.pid, number)

    def wait(self, timeout: float = 60) -> Said:
        """Until it is done; one that takes longer hangs."""
        self.process.join(timeout)
        hangs = self.process.exitcode is None
        if hangs:
            self.process.kill()
            self.process.join()
        texts = [path.read_text(errors="replace") if path.exists() else "" for path in (self.out, self.err)]
        for path in (self.out, self.err):
            path.unlink(missing_ok=True)
        assert not hangs, f"it hangs; it said {texts}"
        return Said(self.process.exitcode, *texts, time.monotonic() - self.started)


def command(*arguments: Any, folder: Path, timeout: float = 60, **how: Any) -> Said:
    """`imix ARGUMENTS`, to its end."""
    return Command(arguments, folder, **how).wait(timeout)


def two_ranks(*arguments: Any, folder: Path, environment: dict[str, str] | None = None, **how: Any) -> list[Command]:
    """`imix ARGUMENTS` as two ranks, that no torchrun looks after."""
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())} | (environment or {})
    return [Command(arguments, folder, place | {"RANK": rank, "LOCAL_RANK": rank}, **how) for rank in ("0", "1")]


def torchrun(*arguments: Any, restarts: int = 0, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """`torchrun --nproc-per-node 2 -m imix ARGUMENTS`, a real one."""
    words = [sys.executable, *TWO_RANKS, "--max-restarts", restarts, "-m", "imix", *arguments]
    return subprocess.Popen(
        [str(word) for word in words],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rank_process(parent: int, rank: int) -> int:
    """The process id of a rank that a torchrun started."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            own = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent
            if own and f"\0LOCAL_RANK={rank}\0".encode() in (place / "environ").read_bytes():
                return int(place.name)
        except OSError:
            continue
    raise AssertionError(f"there is no rank {rank}")


def wait_until(happened: Callable[[], Any], seconds: float = 60, every: float = 0.01) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(every)


def lines_in(folder: Path) -> int:
    """How many records a run has written."""
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def of_method(method: str, **changes: Any) -> Settings:
    """Small settings of a method."""
    return replace(SMALL, method=method, **changes)
