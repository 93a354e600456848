"""Cells of the CovType row of the paper's Table 1 and Table 3, with the settings of the authors' code.

    python benchmarks/covtype_row.py FOLDER --method npair --mix mixup --masking 0.2 --seeds 0 1 2 3 4

FOLDER holds UCI's covtype.data.gz. `--export covtype.npz` writes the encoded rows instead; that file serves in place of
the folder where only torch and NumPy are installed.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

import imix
from imix.data import Data, Table, Tensors, load

WHOLE_FILE = imix.Reading(standardise="all")


def covtype(path: str) -> Data:
    """From UCI's file, or from what `export` wrote."""
    if Path(path).is_dir():
        return load("covtype", reading=imix.Reading(standardise="all", data_dir=path))
    with np.load(path) as arrays:
        sources = [
            Tensors(torch.from_numpy(arrays[x]).float(), torch.from_numpy(arrays[y]))
            for x, y in (("x", "y"), ("x_test", "y_test"))
        ]
        table = Table.from_json(json.loads(str(arrays["table"])))
    return Data("covtype", *sources, reading=WHOLE_FILE, table=table)


def export(data: Data, path: str) -> None:
    """Encoded rows, labels and table as one file."""
    assert data.test is not None
    assert data.table is not None
    arrays = {"x": data.train.inputs, "y": data.train.labels, "x_test": data.test.inputs, "y_test": data.test.labels}
    np.savez_compressed(path, table=json.dumps(data.table.to_json()), **arrays)


def main() -> None:
    """Pretrain and evaluate; one line of JSON for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--method", default="npair")
    parser.add_argument("--mix", default="mixup")
    parser.add_argument("--masking", type=float, default=0.0)
    parser.add_argument("--resampling", type=float, default=0.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction)
    parser.add_argument("--export")
    given = parser.parse_args()
    data = covtype(given.data)
    if given.export:
        return export(data, given.export)
    for seed in given.seeds:
        settings = imix.Settings(
            method=given.method,
            mix=given.mix,
            alpha=2.0,
            masking=given.masking,
            resampling=given.resampling,
            augment_columns=("numeric",),
            temperature=0.1,
            encoder="mlp",
            head="mlpbn",
            batch_size=512,
            epochs=given.epochs,
            seed=seed,
            compile=given.compile,
        )
        started = time.monotonic()
        run = imix.pretrain(data, settings)
        trained = time.monotonic()
        linear = imix.evaluate(run, data)
        found = {
            "method": given.method,
            "mix": given.mix,
            "masking": given.masking,
            "resampling": given.resampling,
            "seed": seed,
            "linear": round(linear.accuracy, 4),
            "linear, paper's way": round(linear.details["paper_accuracy"], 4),
            "seconds of training": round(trained - started, 1),
            "seconds of evaluation": round(time.monotonic() - trained, 1),
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
