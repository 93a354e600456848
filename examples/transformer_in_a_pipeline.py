"""IMixTransformer in a scikit-learn Pipeline, on a frame with strings, dates and gaps.

    python examples/transformer_in_a_pipeline.py

The table is made up: readings of pumps, where a fault is a temperature that is wrong *for its maker*, too high or too
low. So the columns are not enough for a linear classifier, and what features add can be seen. The transformer takes
the frame as it is; columns need their imputing, scaling and encoding first. Prints the accuracy of a logistic
regression on each, mean and deviation over five folds, and how often the commoner answer is right by itself.
"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import imix

USUAL = {"Aster": 40.0, "Borea": 55.0, "Cirrus": 70.0}  # temperature at which each maker's pumps run


def pumps(n: int = 600) -> tuple[pd.DataFrame, pd.Series]:
    """Readings, and whether there was a fault."""
    rng = np.random.default_rng(0)
    maker = rng.choice(list(USUAL), n)
    fault = rng.uniform(size=n) < 0.4
    off = np.where(fault, rng.choice([-1, 1], n) * rng.uniform(8, 16, n), rng.normal(scale=3, size=n))
    temperature = np.array([USUAL[name] for name in maker]) + off
    frame = pd.DataFrame(
        {
            "maker": maker,
            "site": rng.choice(["north", "south", "harbour"], n),
            "temperature": temperature,
            "casing": temperature + rng.normal(scale=3, size=n),  # a second thermometer, further out
            "pressure": rng.normal(5, 1, n),
        }
    )
    for column in ("site", "casing", "pressure"):
        frame.loc[rng.uniform(size=n) < 0.1, column] = None
    return frame, pd.Series(fault, name="fault")


def main() -> None:
    """Cross-validate both pipelines on the same folds."""
    frame, fault = pumps()
    text = make_column_selector(dtype_exclude="number")
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), text),
        (make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler()), make_column_selector(dtype_include="number")),
    )
    learned = imix.IMixTransformer(epochs=30, batch_size=64, random_state=0)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    print(f"{'always the commoner':<22}{100 * (1 - fault.mean()):.1f} %")
    for name, first in {"columns": columns, "i-Mix": learned}.items():
        model = make_pipeline(first, LogisticRegression(max_iter=2000))
        found = 100 * cross_val_score(model, frame, fault, cv=folds)
        print(f"{name:<22}{found.mean():.1f} ± {found.std(ddof=1):.1f} %")
    print(learned.fit(frame).table_)

    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingClassifier
    for name, first, c in [("none", clone(learned).set_params(mix="none"), LogisticRegression(max_iter=2000)), ("untrained", clone(learned).set_params(epochs=1,lr=1e-12), LogisticRegression(max_iter=2000)), ("gb", columns, HistGradientBoostingClassifier())]:
        model = make_pipeline(first, c)
        found = 100 * cross_val_score(model, frame, fault, cv=folds)
        print(f"{name:<22}{found.mean():.1f} ± {found.std(ddof=1):.1f} %")


if __name__ == "__main__":
    main()
