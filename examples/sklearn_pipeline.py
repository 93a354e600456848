"""IMixTransformer in a scikit-learn Pipeline, cross-validated on a data frame with strings and missing values.

    python examples/sklearn_pipeline.py

The transformer takes the data frame directly; for other models the columns have to be imputed, scaled and encoded
first. The data is synthetic: readings of pumps. A fault is a temperature that is too high or too low *for the
manufacturer*, so a linear classifier does poorly on the columns and better on features learned from them without
labels.

Prints accuracies, mean and standard deviation over five folds: of the most frequent class, of logistic regression on
the columns and on the features, and of gradient-boosted trees on the columns, which are best here, as is common if
every row has a label. The features are better because of contrastive learning, not because of mixing: mix="none" is as
good.
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

NORMAL_TEMPERATURE = {"Aster": 40.0, "Borea": 55.0, "Cirrus": 70.0}  # by manufacturer


def make_pumps(n: int = 600) -> tuple[pd.DataFrame, pd.Series]:
    """Return readings of pumps, and whether each has a fault."""
    rng = np.random.default_rng(0)
    manufacturer = rng.choice(list(NORMAL_TEMPERATURE), n)
    fault = rng.uniform(size=n) < 0.4
    deviation = np.where(fault, rng.choice([-1, 1], n) * rng.uniform(8, 16, n), rng.normal(scale=3, size=n))
    temperature = np.array([NORMAL_TEMPERATURE[name] for name in manufacturer]) + deviation
    frame = pd.DataFrame(
        {
            "manufacturer": manufacturer,
            "site": rng.choice(["north", "south", "harbor"], n),
            "temperature": temperature,
            "casing": temperature + rng.normal(scale=3, size=n),  # a second thermometer, less precise
            "pressure": rng.normal(5, 1, n),
        }
    )
    for column in ("site", "casing", "pressure"):
        frame.loc[rng.uniform(size=n) < 0.1, column] = None
    return frame, pd.Series(fault, name="fault")


def main() -> None:
    """Cross-validate all pipelines on the same folds."""
    frame, fault = make_pumps()
    numeric = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        (numeric, make_column_selector(dtype_include="number")),
    )
    # Parameters of the transformer, such as imixtransformer__mix, can be tuned with GridSearchCV.
    transformer = imix.IMixTransformer(epochs=20, batch_size=64, random_state=0)
    models = {
        "columns, linear": make_pipeline(columns, LogisticRegression(max_iter=2000)),
        "i-Mix, linear": make_pipeline(transformer, LogisticRegression(max_iter=2000)),
        "columns, trees": make_pipeline(columns, HistGradientBoostingClassifier(max_iter=30, random_state=0)),
    }
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    print(f"{'most frequent class':<22}{100 * (1 - fault.mean()):.1f}%")
    for name, model in models.items():
        accuracies = 100 * cross_val_score(model, frame, fault, cv=folds)
        print(f"{name:<22}{accuracies.mean():.1f} ± {accuracies.std(ddof=1):.1f}%")


if __name__ == "__main__":
    main()
