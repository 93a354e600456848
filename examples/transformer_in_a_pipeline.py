"""IMixTransformer in a scikit-learn Pipeline, on a frame with strings and gaps, cross-validated.

    python examples/transformer_in_a_pipeline.py

The transformer takes the frame as it is; the columns themselves need imputing, scaling and encoding first. The table is
made up: readings of pumps, where a fault is a temperature that is wrong *for its maker*, too high or too low. So a
linear classifier can do little with the columns, and more with features of them that were learned without labels.

Prints accuracies, mean and deviation over five folds: of the commoner answer alone; of a logistic regression on the
columns and on the features; and of boosted trees on the columns, which are best here, as often where every row has a
label. What the features gain comes from contrastive learning, not from mixing: with mix="none" they are as good.
"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
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
    """Cross-validate all pipelines on the same folds."""
    frame, fault = pumps()
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        (numbers, make_column_selector(dtype_include="number")),
    )
    # A parameter of the transformer, such as imixtransformer__mix, can be searched as any other.
    learned = imix.IMixTransformer(epochs=20, batch_size=64, random_state=0)
    models = {
        "columns, linear": make_pipeline(columns, LogisticRegression(max_iter=2000)),
        "i-Mix, linear": make_pipeline(learned, LogisticRegression(max_iter=2000)),
        "columns, trees": make_pipeline(columns, HistGradientBoostingClassifier(max_iter=30, random_state=0)),
    }
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    print(f"{'always the commoner':<22}{100 * (1 - fault.mean()):.1f} %")
    for name, model in models.items():
        found = 100 * cross_val_score(model, frame, fault, cv=folds)
        print(f"{name:<22}{found.mean():.1f} ± {found.std(ddof=1):.1f} %")


if __name__ == "__main__":
    main()
