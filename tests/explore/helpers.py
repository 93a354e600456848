"""Small tables for the tests of questions."""

import numpy as np
import polars

from imix import Settings

QUICK = Settings(epochs=3, batch_size=60, encoder="mlp:16-32", device="cpu")


def customers(n: int, seed: int = 0) -> polars.DataFrame:
    """A table in which the row number modulo 3 determines age, income and city."""
    rng = np.random.default_rng(seed)
    kind = np.arange(n) % 3
    return polars.DataFrame(
        {
            "id": [f"c{seed}-{i:04}" for i in range(n)],
            "age": np.array([30.0, 50.0, 70.0])[kind] + rng.normal(size=n),
            "income": np.array([1000.0, 9000.0, 5000.0])[kind] + 100 * rng.normal(size=n),
            "city": np.array(["Rome", "Oslo", "Bern"])[kind],
            "churned": np.array(["no", "yes", "maybe"])[kind],
        }
    )
