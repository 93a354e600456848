"""A table with every kind of column, and shortcuts for tests of tables."""

from datetime import datetime, timedelta

import numpy as np

from imix import DataSettings, Settings
from imix.data import load

QUICK = Settings(epochs=2, batch_size=16, encoder="mlp:8-8", device="cpu")


def people(n=120, seed=0):
    """A table with every kind of column, including missing values, as a dict of lists."""
    rng = np.random.default_rng(seed)
    return {
        "row": list(range(n)),
        "name": [f"person {seed} {i}" for i in range(n)],
        "age": [None if i % 9 == 4 else float(a) for i, a in enumerate(rng.integers(18, 90, n))],
        "income": np.round(rng.lognormal(10, 1, n), 2).tolist(),
        "smoker": [bool(s) for s in rng.random(n) < 0.3],
        "city": [None if i % 11 == 3 else str(c) for i, c in enumerate(rng.choice(["Rome", "Oslo", "Łódź, PL"], n))],
        "rooms": rng.integers(1, 6, n).tolist(),
        "joined": [datetime(2020, 1, 1) + timedelta(days=int(d)) for d in rng.integers(0, 1500, n)],
        "empty": [None] * n,
        "target": [["lo", "mid", "hi"][i % 3] for i in range(n)],
    }


def load_text(path, text, **settings):
    """Write a file and load it."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(path, DataSettings(**settings))
