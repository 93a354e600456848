"""epochs="auto" and batch_size="auto" beside a small grid of epochs and batch sizes, on small data sets.

    python benchmarks/auto_length.py breast_cancer digits --out auto.csv
    python benchmarks/auto_length.py tables/*.csv cifar.npz --settings grid auto --out auto.csv

A data set is one of scikit-learn's tables (digits, breast_cancer, wine, iris) or a file. Without test samples, a fifth
of the rows is held out. Every encoder is trained on the training samples without labels. Linear models are then trained
on its features, with all labels and with ten per class (five draws), and measured twice:

- validation: trained on four fifths of the training labels and measured on the others
- test: trained on the training labels and measured on the test samples

The hand-tuned setting of a data set is the one of the grid with the best mean validation accuracy with all labels and
with ten per class. Each encoder is one line of the CSV file; encoders that the file already contains are not trained
again. Rows use an MLP that is half as wide as the default one, and other data the default encoder. Images get the
augmentation `cifar`, and sequences, for which no augmentation is known, CutMix and InputMix.
"""

import argparse
import csv
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from few_labels import load_table
from timing import format_table
from torch import Tensor

import imix
from imix.data import Data
from imix.evaluation.samples import Samples, encode
from imix.evaluation.summary import draw_labels
from imix.probes.held_out import stratified_split, with_test_split
from imix.probes.linear import fit_linear

FIELDS = ("data", "setting", "epochs", "batch_size", "seed", "samples", "steps", "seconds")
ACCURACIES = ("validation_all", "validation_10", "test_all", "test_10")
GRID = ((64, 400), (64, 1600), (64, 6400), (256, 400), (256, 1600))  # batch size and steps
CONVOLUTIONAL_GRID = GRID[:2] + GRID[3:4]  # these steps take many times as long
LABELS, DRAWS = 10, 5
OPTIONS: dict[int, dict[str, Any]] = {  # by the number of axes of a sample
    1: {"encoder": "mlp:128-128-512"},
    2: {"mix": "cutmix", "input_mix": 2},
    3: {"augment": "cifar"},
}


def settings_of(data: Data, names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the options of each setting."""
    n = len(data.train)
    for batch_size, steps in GRID if len(data.train.shape or ()) == 1 else CONVOLUTIONAL_GRID:
        if "grid" in names and batch_size <= n:
            yield "grid", {"epochs": max(1, round(steps / (n // batch_size))), "batch_size": batch_size}
    if "auto" in names:
        yield "auto", {"epochs": "auto", "batch_size": "auto"}


def accuracies(samples: Samples) -> tuple[float, float]:
    """Return the accuracy in percent of linear models on all labels, and on ten per class."""
    samples = samples.standardized()
    rows = draw_labels(samples, LABELS, DRAWS, seed=0)
    everything = torch.arange(len(samples.labels))[None]
    return _accuracy(samples, everything), _accuracy(samples, everything if rows is None else rows)


def _accuracy(samples: Samples, rows: Tensor) -> float:
    """Return the mean accuracy of linear models trained on each draw of rows (draws, n)."""
    model = fit_linear(samples.train[rows], samples.labels[rows], samples.n_classes)
    return 100 * float((model(samples.test).argmax(2) == samples.test_labels).double().mean())


def measure(data: Data, options: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train one encoder and return what the CSV file says about it."""
    start = time.process_time()
    run = imix.pretrain(data, seed=seed, progress=False, device="cpu", **options)
    seconds = time.process_time() - start
    test = encode(run.encoder, data, torch.device("cpu"))
    kept, held_out = stratified_split(test.labels, 0.2, seed=0)
    train, labels = test.train, test.labels
    validation = replace(
        test, train=train[kept], labels=labels[kept], test=train[held_out], test_labels=labels[held_out]
    )
    values = (*accuracies(validation), *accuracies(test))
    settings, n = run.settings, len(data.train)
    return {
        "epochs": settings.epochs,
        "batch_size": settings.batch_size,
        "samples": n,
        "steps": settings.epochs * (n // min(n, settings.batch_size)),
        "seconds": f"{seconds:.1f}",
    } | {name: f"{value:.2f}" for name, value in zip(ACCURACIES, values, strict=True)}


def print_comparison(lines: list[dict[str, str]]) -> None:
    """Print the hand-tuned setting and auto for each data set."""
    by_data: dict[str, list[dict[str, str]]] = defaultdict(list)
    for line in lines:
        by_data[line["data"]].append(line)
    rows = []
    for name, measured in by_data.items():
        grid = [line for line in measured if line["setting"] == "grid" and line["seed"] == "0"]
        if grid:
            best = max(grid, key=lambda line: float(line["validation_all"]) + float(line["validation_10"]))
            rows += [[name, "hand-tuned", *(best[key] for key in (*FIELDS[2:], *ACCURACIES))]]
        rows += [
            [name, "auto", *(line[key] for key in (*FIELDS[2:], *ACCURACIES))]
            for line in measured
            if line["setting"] == "auto"
        ]
    print(format_table(["data", "setting", *FIELDS[2:], *ACCURACIES], rows))


def main() -> None:
    """Measure what is missing in the CSV file, and print a comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="names of scikit-learn's tables, or files")
    parser.add_argument("--label", default="class", help="label column of the tables")
    parser.add_argument("--settings", nargs="+", choices=["grid", "auto"], default=["grid", "auto"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--out", type=Path, default=Path("auto.csv"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = list(csv.DictReader(args.out.open())) if args.out.exists() else []
    keys = ("data", "setting", "seed", "epochs", "batch_size")
    for name in args.data:
        label = "" if name.endswith(".npz") else args.label
        data, _ = with_test_split(load_table(name, label) if label else imix.data.load(name), seed=0)
        options = OPTIONS[len(data.train.shape or ())]
        for seed in args.seeds:
            for setting, length in settings_of(data, args.settings):
                key = {"data": Path(name).stem, "setting": setting, "seed": str(seed)}
                if setting == "grid":
                    key |= {option: str(value) for option, value in length.items()}
                if any(key.items() <= line.items() for line in lines):
                    continue
                line = key | {field: str(value) for field, value in measure(data, options | length, seed).items()}
                with args.out.open("a", newline="") as file:
                    writer = csv.DictWriter(file, (*FIELDS, *ACCURACIES))
                    if not lines:
                        writer.writeheader()
                    writer.writerow(line)
                lines.append(line)
                print(*line.values(), sep=", ", flush=True)
    print_comparison([line for line in lines if all(line.get(key) for key in keys)])


if __name__ == "__main__":
    main()
