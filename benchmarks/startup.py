"""Startup time of the `imix` commands, against a bare Python, and of a compiled run up to its first step.

    python benchmarks/startup.py
    python benchmarks/startup.py --first-step --encoder small --device cpu    # the compiled run on a CPU

The commands alternate, each in a new process. The compiled run (CIFAR's size, batch 256) is timed twice, with an empty
compiler cache (TORCHINDUCTOR_CACHE_DIR) and with the cache of the first run; the time is that of the whole process,
which takes a single step.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from timing import format_table

HELP_TARGET, STEP_TARGET = 0.4, 40.0  # seconds
FIRST_STEP = """
import torch, imix
from imix.data import Data, TensorSource
data = Data("pixels", TensorSource(torch.randint(0, 256, (256, 3, 32, 32), dtype=torch.uint8)), augment="cifar")
settings = imix.Settings(encoder={encoder!r}, device={device!r}, epochs=1, batch_size=256, compile=True)
imix.pretrain(data, settings, progress=False)
"""


def build_commands() -> dict[str, list[str]]:
    """Return the commands to time, keyed by what a user would type."""
    script = Path(sys.executable).parent / "imix"
    imix = [str(script)] if script.exists() else [sys.executable, "-m", "imix"]
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import imix'": [sys.executable, "-c", "import imix"],
        "imix --version": [*imix, "--version"],
        "imix --help": [*imix, "--help"],
        "imix pretrain --help": [*imix, "pretrain", "--help"],
        "imix reproduce --list": [*imix, "reproduce", "--list"],
    }


def run_seconds(command: list[str], **environment: str) -> float:
    """Return the wall time of a process, which must succeed."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | environment)
    return time.perf_counter() - start


def main() -> None:
    """Print a line of JSON for each command, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--first-step", action="store_true", help="time the compiled run on a CPU, too")
    args = parser.parse_args()
    commands = build_commands()
    times: dict[str, list[float]] = {name: [] for name in commands}
    for i in range(args.rounds + 1):
        for name, command in commands.items():
            seconds = run_seconds(command)
            if i > 0:  # the first round reads files from disk, the others from the page cache
                times[name].append(seconds)
    rows = []
    for name, measured in times.items():
        best, median = min(measured), statistics.median(measured)
        target = ("met" if best < HELP_TARGET else "missed") if name.endswith("--help") else None
        line = {"command": name, "best": round(best, 3), "median": round(median, 3)}
        print(json.dumps(line | {f"target of {HELP_TARGET:g} s": target}), flush=True)
        rows.append([name, f"{best:.2f}", f"{median:.2f}", target or "-"])
    if args.device == "cpu" and not args.first_step:
        print("skipped the compiled run, which needs a GPU (--first-step runs it on the CPU)")
    else:
        code = FIRST_STEP.format(encoder=args.encoder, device=args.device)
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("empty", "filled"):
                seconds = run_seconds([sys.executable, "-c", code], TORCHINDUCTOR_CACHE_DIR=folder)
                target = "met" if seconds < STEP_TARGET else "missed"
                name = f"first compiled step, {cache} cache"
                line = {"command": name, "encoder": args.encoder, "device": args.device, "seconds": round(seconds, 1)}
                print(json.dumps(line | {f"target of {STEP_TARGET:g} s": target}), flush=True)
                rows.append([name, f"{seconds:.2f}", f"{seconds:.2f}", target])
    print(format_table(["command", "best, s", "median, s", "target"], rows))


if __name__ == "__main__":
    main()
