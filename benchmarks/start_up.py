"""How long the command takes to answer, and, on a GPU, how long a compiled run takes to its first step.

    python benchmarks/start_up.py
    python benchmarks/start_up.py --first-step --encoder small --device cpu    # what a GPU is asked for, on a CPU

Commands take turns, each in a process of its own, as a user starts it; a bare `python -c pass` stands beside them. The
compiled run (CIFAR's size, batch 256) starts with an empty folder for what the compiler keeps
(TORCHINDUCTOR_CACHE_DIR), then again with what the first one left there; its time is the whole process, from start to
the end of its only step.
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
from clock import table

HELP_TARGET, STEP_TARGET = 0.5, 40.0
FIRST_STEP = """
import torch, imix
from imix.data import Data, Tensors
data = Data("pixels", Tensors(torch.randint(0, 256, (256, 3, 32, 32), dtype=torch.uint8)), augment="cifar")
settings = imix.Settings(encoder={encoder!r}, device={device!r}, epochs=1, batch_size=256, compile=True)
imix.pretrain(data, settings, progress=False)
"""


def commands() -> dict[str, list[str]]:
    """What is started, by how a user writes it."""
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


def seconds(command: list[str], **environment: str) -> float:
    """Wall time of a process that must succeed."""
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | environment)
    return time.perf_counter() - started


def main() -> None:
    """One line of JSON for each command, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--first-step", action="store_true", help="on a CPU, too")
    given = parser.parse_args()
    asked = commands()
    found: dict[str, list[float]] = {name: [] for name in asked}
    for turn in range(given.rounds + 1):
        for name, command in asked.items():
            took = seconds(command)
            if turn:  # the first one reads files that the others find in memory
                found[name].append(took)
    lines = []
    for name, times in found.items():
        best, median = min(times), statistics.median(times)
        target = ("met" if best < HELP_TARGET else "missed") if name.endswith("--help") else None
        line = {"command": name, "best": round(best, 3), "median": round(median, 3)}
        print(json.dumps(line | {"target of 0.5 s": target}), flush=True)
        lines.append([name, f"{best:.2f}", f"{median:.2f}", target or "-"])
    if given.device == "cpu" and not given.first_step:
        print("no GPU asked for: the time to the first compiled step is left out")
    else:
        code = FIRST_STEP.format(encoder=given.encoder, device=given.device)
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("empty", "filled"):
                took = seconds([sys.executable, "-c", code], TORCHINDUCTOR_CACHE_DIR=folder)
                target = "met" if took < STEP_TARGET else "missed"
                name = f"first compiled step, cache {cache}"
                line = {"command": name, "encoder": given.encoder, "device": given.device, "seconds": round(took, 1)}
                print(json.dumps(line | {"target of 40 s": target}), flush=True)
                lines.append([name, f"{took:.2f}", f"{took:.2f}", target])
    print(table(["command", "best, s", "median, s", "target"], lines))


if __name__ == "__main__":
    main()
