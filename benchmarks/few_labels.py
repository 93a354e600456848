"""Few labels: logistic regression on the columns of a table, against features of IMixTransformer, trained unlabeled.

    python benchmarks/few_labels.py                 # all classification tables of scikit-learn, ten seeds
    python benchmarks/few_labels.py digits --seeds 3

For each seed, the table is split into 70% training rows without labels and 30% test rows. Ten training rows per class
are labeled. The same logistic regression is fitted to the columns, standardized on all training rows, and to the
features of these rows.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from imix import IMixTransformer

TABLES: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
    "digits": datasets.load_digits,
    "breast cancer": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
    "iris": datasets.load_iris,
}
LABELED_PER_CLASS = 10


def accuracies(table: str, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    """Return the test accuracy on columns and features, for one split and one choice of labeled rows."""
    x, y = TABLES[table](return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.3, stratify=y, random_state=seed)
    rng = np.random.default_rng(seed)
    labeled = np.concatenate(
        [rng.choice(np.flatnonzero(y == label), LABELED_PER_CLASS, replace=False) for label in np.unique(y)]
    )
    transformers = {
        "columns": StandardScaler(),
        "i-Mix": IMixTransformer(random_state=seed, **settings),
        "no mixing": IMixTransformer(random_state=seed, mix="none", **settings),
    }
    return {
        name: LogisticRegression(max_iter=5000)
        .fit(transformer.fit(x).transform(x)[labeled], y[labeled])
        .score(transformer.transform(x_test), y_test)
        for name, transformer in transformers.items()
    }


def main() -> None:
    """Print a line of JSON for each table, and a Markdown table of means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help=", ".join(TABLES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--settings", type=json.loads, default={}, help='settings of IMixTransformer as JSON, e.g. {"epochs": 200}'
    )
    args = parser.parse_args()
    rows = []
    for table in args.tables or TABLES:
        trials = [accuracies(table, seed, args.settings) for seed in range(args.seeds)]
        percent = {name: np.array([trial[name] for trial in trials]) * 100 for name in trials[0]}
        print(json.dumps({"table": table} | {name: values.round(2).tolist() for name, values in percent.items()}))
        means = [f"{values.mean():.1f} ± {values.std(ddof=1):.1f}" for values in percent.values()]
        better = int((percent["i-Mix"] > percent["columns"]).sum())
        rows.append(f"| {table} | {' | '.join(means)} | {better} of {args.seeds} |")
    print("| table | columns | i-Mix | no mixing | i-Mix better than columns |")
    print("\n".join(["| --- | --- | --- | --- | --- |", *rows]))


if __name__ == "__main__":
    main()
