"""Few labels: classifiers on the columns of tables, against features trained without labels, and both together.

    python benchmarks/few_labels_files.py digits wine --out few.csv
    python benchmarks/few_labels_files.py tables/*.csv --label class --settings '{"masking": 0.4}' --out few.csv

A table is one of scikit-learn's (digits, breast_cancer, wine, iris) or a file. For each seed a fifth of the rows is
held out for testing; the encoder is trained on the others without labels, with and without mixing. `imix.evaluate` then
trains the same classifiers on columns, features and both, with few labels per class and with all. Each result is a line
of the CSV file; lines that it already has are not measured again.
"""

import argparse
import csv
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from sklearn import datasets
from timing import format_table

import imix
from imix.data import Data
from imix.probes.held_out import with_test_split

STEPS, BATCH = 2000, 256  # about this many steps, whatever the size of the table
FIELDS = ("table", "settings", "mix", "seed", "representation", "protocol", "labels", "accuracy", "balanced_accuracy")


def load_table(name: str, label: str) -> Data:
    """Load a table of scikit-learn, or a file."""
    if Path(name).exists():
        return imix.data.load(name, imix.DataSettings(label=label))
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return imix.data.load(x, labels=y)


def measure(
    name: str, label: str, settings: dict[str, Any], mix: str, seed: int, trees: bool
) -> Iterator[dict[str, Any]]:
    """Train on one table and yield the results as lines of the CSV file."""
    data, _ = with_test_split(load_table(name, label), seed)
    epochs = max(10, round(STEPS * BATCH / len(data.train)))
    options: Any = {"mix": mix, "seed": seed, "epochs": epochs, "batch_size": BATCH} | settings
    run = imix.pretrain(data, progress=False, **options)
    summary = imix.evaluate(run, data, labels_per_class=(10, 50, 250), trees=trees, seed=seed)
    for result in summary.results:
        yield {
            "table": Path(name).stem,
            "settings": json.dumps(settings),
            "mix": mix,
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
        row = (line["settings"], line["mix"], f"{line['representation']}, {line['protocol']}")
        values[row][line["labels"]].append(float(line["balanced_accuracy"]))
    counts = list(dict.fromkeys(line["labels"] for line in lines))
    rows = [
        [*row, *(f"{mean(by_count[n]):.1f}" if by_count[n] else "" for n in counts)] for row, by_count in values.items()
    ]
    print(format_table(["settings", "mix", "classifier", *counts], rows))


def main() -> None:
    """Measure what the CSV file lacks, and print means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", help="names of scikit-learn's tables, or files")
    parser.add_argument("--label", default="class", help="label column of the files")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON, such as {'epochs': 100}")
    parser.add_argument("--mix", nargs="+", default=["none", "mixup"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trees", action="store_true", help="also train tree ensembles")
    parser.add_argument("--out", type=Path, default=Path("few_labels.csv"))
    args = parser.parse_args()
    lines = list(csv.DictReader(args.out.open())) if args.out.exists() else []
    done = {(line["table"], line["settings"], line["mix"], line["seed"]) for line in lines}
    with args.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not lines:
            writer.writeheader()
        for name, mix, seed in itertools.product(args.tables, args.mix, range(args.seeds)):
            if (Path(name).stem, json.dumps(args.settings), mix, str(seed)) in done:
                continue
            measured = list(measure(name, args.label, args.settings, mix, seed, args.trees))
            writer.writerows(measured)
            file.flush()
            lines += [{key: str(value) for key, value in line.items()} for line in measured]
            print(f"{Path(name).stem}, {mix}, seed {seed}", flush=True)
    print_means(lines)


if __name__ == "__main__":
    main()
