"""`imix demo`: the effect of i-Mix in two minutes on a laptop, on digits without any augmentation."""

import time
from dataclasses import replace
from pathlib import Path

from imix.data import load
from imix.evaluation import Result, embed, evaluate
from imix.report import Arm, write_report
from imix.settings import Settings
from imix.train.pretrain import pretrain

# The paper's five-layer network at a laptop's width, no augmentation: both views of a digit are the same.
PLAIN = Settings(
    method="npair", mix="none", encoder="mlp:256-256-256-256-512", batch_size=64, epochs=40, temperature=0.5
)
ARMS = {
    "N-pair": PLAIN,
    "N-pair + i-Mix": replace(PLAIN, mix="mixup"),
}


def demo(out: Path, seeds: int = 3, epochs: int | None = None) -> list[Arm]:
    """Pretrain and evaluate each arm with each seed, print a table, write runs and report.html below `out`."""
    started = time.monotonic()
    print("digits, no augmentation: N-pair without and with i-Mix, about a minute on two cores", flush=True)
    digits = load("digits")
    assert digits.test is not None
    assert digits.test.labels is not None
    arms = []
    for name, settings in ARMS.items():
        if epochs is not None:
            settings = replace(settings, epochs=epochs)
        folder = name.lower().replace(" ", "").replace("+", "-")
        runs, results = [], {"linear": list[Result](), "knn": list[Result]()}
        for seed in range(seeds):
            run_folder = out / f"{folder}-{seed}"
            runs.append(pretrain(digits, replace(settings, seed=seed), out=run_folder, overwrite=True, progress=False))
            for protocol, found in results.items():
                found.append(evaluate(runs[-1], digits, protocol))
            print(f"{name}, seed {seed}: {results['linear'][-1].accuracy:.1%} (linear)", flush=True)
        features = embed(runs[0], digits.test)
        arms.append(Arm(name, runs, results, features, digits.test.labels.numpy()))
    print(_table(arms))
    path = write_report(out / "report.html", "i-Mix on digits, without augmentation", arms, command="imix demo")
    print(f"\n{time.monotonic() - started:.0f} s; open {path}")
    return arms


def _table(arms: list[Arm]) -> str:
    protocols = list(arms[0].results)
    lines = [f"{'test accuracy, %':<20}" + "".join(f"{protocol:>16}" for protocol in protocols)]
    for arm in arms:
        lines.append(f"{arm.name:<20}" + "".join(f"{arm.accuracy(protocol):>16}" for protocol in protocols))
    return "\n".join(lines)
