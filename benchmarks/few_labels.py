"""Few labels: a linear classifier on the columns of a table, and on features that IMixTransformer learned without any.

    python benchmarks/few_labels.py                 # all tables that scikit-learn ships with classes, ten seeds
    python benchmarks/few_labels.py digits --seeds 3

For each seed the table is split, 70% for learning without labels and 30% for testing; ten rows of each class have a
label. Both get the same logistic regression on the same rows; the columns are standardised by all training rows.
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
LABELLED = 10  # rows of each class


def trial(table: str, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    """Accuracies for one split, one choice of labelled rows and one training run of each kind."""
    x, y = TABLES[table](return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.3, stratify=y, random_state=seed)
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.choice(np.flatnonzero(y == label), LABELLED, replace=False) for label in np.unique(y)])
    learners = {
        "columns": StandardScaler(),
        "i-Mix": IMixTransformer(random_state=seed, **settings),
        "no mixing": IMixTransformer(random_state=seed, mix="none", **settings),
    }
    return {
        name: LogisticRegression(max_iter=5000)
        .fit(learner.fit(x).transform(x)[rows], y[rows])
        .score(learner.transform(x_test), y_test)
        for name, learner in learners.items()
    }


def main() -> None:
    """One line of JSON for each table, then a table of means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help=", ".join(TABLES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--settings", type=json.loads, default={}, help='of IMixTransformer, as JSON: {"epochs": 200}')
    given = parser.parse_args()
    lines = []
    for table in given.tables or TABLES:
        trials = [trial(table, seed, given.settings) for seed in range(given.seeds)]
        found = {name: np.array([trial[name] for trial in trials]) * 100 for name in trials[0]}
        print(json.dumps({"table": table} | {name: values.round(2).tolist() for name, values in found.items()}))
        means = [f"{values.mean():.1f} ± {values.std(ddof=1):.1f}" for values in found.values()]
        ahead = int((found["i-Mix"] > found["columns"]).sum())
        lines.append(f"| {table} | {' | '.join(means)} | {ahead} of {given.seeds} |")
    print(
        "\n".join(
            [
                "| table | columns | i-Mix | no mixing | i-Mix ahead of columns |",
                "| --- | --- | --- | --- | --- |",
                *lines,
            ]
        )
    )


if __name__ == "__main__":
    main()
