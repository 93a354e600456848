"""Few labels on tables: classifiers on the columns, on features learned without labels, and on both together.

    python benchmarks/few_labels.py digits wine --out few.csv
    python benchmarks/few_labels.py tables/*.csv --label class --recipes default unmixed --out few.csv

A table is one of scikit-learn's (digits, breast_cancer, wine, iris) or a file. For each seed a fifth of the rows is
held out for testing, and the encoder is trained on the others without labels. `imix.evaluate` then trains the same
classifiers on columns, features and both, with few labels per class and with all labels. Each result is one line of the
CSV file. Results that the file already contains are not measured again.

The recipes differ only in pretraining: "default", "unmixed" (the same without i-Mix), "scarf" (N-pair with resampling
0.6, temperature 1 and no mixing), and "masked" (predict the cells of a row from a copy in which some are resampled).
"""

import argparse
import csv
import functools
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from sklearn import datasets
from timing import format_table
from torch import Tensor, nn

import imix
from imix.data import Data
from imix.probes.held_out import with_test_split

STEPS, BATCH, MAX_EPOCHS = 2000, 256, 200  # about this many steps, but at most the default number of epochs
FIELDS = (
    "table",
    "recipe",
    "settings",
    "seed",
    "representation",
    "protocol",
    "labels",
    "accuracy",
    "balanced_accuracy",
)


class MaskedPrediction(imix.methods.Method):
    """Predict the cells of a row from a copy in which 30% of the cells come from other rows."""

    n_views = 1

    def __init__(self, encoder: nn.Module, mix: Any, width: int, inputs: int) -> None:
        super().__init__(encoder, None, width)
        self.corrupt, self.decoder = imix.augment.Resampling(0.3), nn.Linear(width, inputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean squared error."""
        corrupted = self.corrupt(x)
        assert isinstance(corrupted, Tensor)
        return (self.decoder(self.encoder(corrupted)) - x).square().mean()


def recipe_options(recipe: str, data: Data) -> dict[str, Any]:
    """Return the pretraining options of a recipe."""
    assert data.train.shape is not None
    masked = functools.partial(MaskedPrediction, inputs=data.train.shape[0])
    recipes: dict[str, dict[str, Any]] = {
        "default": {},
        "unmixed": {"mix": "none"},
        "scarf": {"mix": "none", "masking": 0.0, "resampling": 0.6, "temperature": 1.0},
        "masked": {"mix": "none", "augment": "none", "method": masked},
    }
    return recipes[recipe]


def load_table(name: str, label: str) -> Data:
    """Load one of scikit-learn's tables, or a file."""
    if Path(name).exists():
        return imix.data.load(name, imix.DataSettings(label=label))
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return imix.data.load(x, labels=y)


def measure(name: str, recipe: str, seed: int, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train on one table and yield the results as lines of the CSV file."""
    data, _ = with_test_split(load_table(name, args.label), seed)
    epochs = min(MAX_EPOCHS, round(STEPS * BATCH / len(data.train)))
    options: Any = {"seed": seed, "epochs": epochs, "batch_size": BATCH} | recipe_options(recipe, data) | args.settings
    run = imix.pretrain(data, progress=False, **options)
    summary = imix.evaluate(run, data, labels_per_class=args.labels_per_class, trees=args.trees, seed=seed)
    for result in summary.results:
        yield {
            "table": Path(name).stem,
            "recipe": recipe,
            "settings": json.dumps(args.settings),
            "seed": seed,
            "representation": result.representation,
            "protocol": result.protocol,
            "labels": result.labels_per_class or "all",
            "accuracy": f"{100 * result.metrics['accuracy']:.2f}",
            "balanced_accuracy": f"{100 * result.metrics['balanced_accuracy']:.2f}",
        }


def print_means(lines: list[dict[str, str]]) -> None:
    """Print the balanced accuracy of each row and number of labels, averaged over tables and seeds."""
    values: dict[tuple[str, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        row = (line["recipe"], line["settings"], f"{line['representation']}, {line['protocol']}")
        values[row][line["labels"]].append(float(line["balanced_accuracy"]))
    counts = list(dict.fromkeys(line["labels"] for line in lines))
    rows = [
        [*row, *(f"{mean(by_count[n]):.1f}" if by_count[n] else "" for n in counts)] for row, by_count in values.items()
    ]
    print(format_table(["recipe", "settings", "classifier", *counts], rows))


def main() -> None:
    """Measure what is missing in the CSV file, and print means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", help="names of scikit-learn's tables, or files")
    parser.add_argument("--label", default="class", help="label column of the files")
    parser.add_argument("--settings", type=json.loads, default={}, help='JSON, such as {"epochs": 100}')
    parser.add_argument("--recipes", nargs="+", default=["default", "unmixed"])
    parser.add_argument("--labels-per-class", nargs="+", type=int, default=[10, 50, 250])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trees", action="store_true", help="also train tree ensembles")
    parser.add_argument("--out", type=Path, default=Path("few_labels.csv"))
    args = parser.parse_args()
    lines = list(csv.DictReader(args.out.open())) if args.out.exists() else []
    done = {(line["table"], line["recipe"], line["settings"], line["seed"]) for line in lines}
    with args.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not lines:
            writer.writeheader()
        for seed, name, recipe in itertools.product(range(args.seeds), args.tables, args.recipes):
            if (Path(name).stem, recipe, json.dumps(args.settings), str(seed)) in done:
                continue
            measured = list(measure(name, recipe, seed, args))
            writer.writerows(measured)
            file.flush()
            lines += [{key: str(value) for key, value in line.items()} for line in measured]
            print(f"{Path(name).stem}, {recipe}, seed {seed}", flush=True)
    print_means(lines)


if __name__ == "__main__":
    main()
