"""Few labels on CovType: classifiers on the columns, and on features learned from all rows without labels.

    python benchmarks/few_labels_covtype.py --seeds 0 1 2 --out few_labels_covtype.csv

The encoder is trained on all 581,012 rows without labels. Labels are drawn from the paper's 15,120 training rows, and
all classifiers are tested on the same 60,000 of the other rows. Results that the file already contains are not measured
again.
"""

import argparse
import csv
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import imix
from imix.batch import concatenate
from imix.data import Data, TensorSource

TEST_ROWS = 60_000
EPOCHS, BATCH = 40, 1024
# How these were chosen: docs/results/few_labels.md
CHOSEN = {
    "encoder": "mlp:1024-1024-1024-4096",
    "masking": 0.0,
    "resampling": 0.15,
    "alpha": 2.0,
    "optimizer": "adamw",
}
RECIPES: dict[str, dict[str, Any]] = {
    "chosen": CHOSEN,
    "unmixed": {**CHOSEN, "mix": "none", "alpha": 1.0},
    "default": {},
}


def load() -> Data:
    """The paper's split, standardized with the mean and standard deviation of all rows."""
    return imix.data.load("covtype", imix.DataSettings(standardize="all"))


def all_rows(data: Data) -> Data:
    """Training and test rows together, without labels."""
    parts = [part.inputs for part in (data.train, data.test) if isinstance(part, TensorSource)]
    return replace(data, train=TensorSource(concatenate(parts)), test=None)


def with_fewer_test_rows(data: Data) -> Data:
    """The same data with a random sample of the test rows."""
    assert data.test is not None
    rows = torch.randperm(len(data.test), generator=torch.Generator().manual_seed(1))[:TEST_ROWS]
    return replace(data, test=data.test.take(rows))


def main() -> None:
    """Measure what is missing in the CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=["chosen", "unmixed"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--labels-per-class", nargs="+", type=int, default=[10, 50, 200])
    parser.add_argument("--draws", type=int, default=10, help="random draws of the labels")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--out", type=Path, default=Path("few_labels_covtype.csv"))
    args = parser.parse_args()
    done = set()
    if args.out.exists():
        with args.out.open() as file:
            done = {(line["recipe"], int(line["seed"]), int(line["epochs"])) for line in csv.DictReader(file)}
    data = load()
    unlabeled, labeled = all_rows(data), with_fewer_test_rows(data)
    for seed in args.seeds:
        for recipe in args.recipes:
            if (recipe, seed, args.epochs) in done:
                continue
            started = time.monotonic()
            options = {"epochs": args.epochs, "batch_size": BATCH, "seed": seed, **RECIPES[recipe]}
            run = imix.pretrain(unlabeled, progress=False, **options)
            print(f"{recipe}, seed {seed}: pretrained in {time.monotonic() - started:.0f} s", flush=True)
            summary = imix.evaluate(
                run, labeled, labels_per_class=args.labels_per_class, draws=args.draws, trees=True, seed=0
            )
            print(summary, flush=True)
            lines = [
                {
                    "recipe": recipe,
                    "settings": json.dumps(RECIPES[recipe]),
                    "epochs": args.epochs,
                    "seed": seed,
                    "representation": result.representation,
                    "protocol": result.protocol,
                    "labels_per_class": result.labels_per_class or "all",
                    "draws": result.draws,
                    "accuracy": f"{100 * result.metrics['accuracy']:.2f}",
                    "std": f"{100 * result.std['accuracy']:.2f}" if result.std else "",
                    "balanced_accuracy": f"{100 * result.metrics['balanced_accuracy']:.2f}",
                }
                for result in summary.results
            ]
            with args.out.open("a", newline="") as file:
                writer = csv.DictWriter(file, lines[0])
                if not file.tell():
                    writer.writeheader()
                writer.writerows(lines)


if __name__ == "__main__":
    main()
