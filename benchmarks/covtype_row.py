"""One cell of the CovType row of the paper's Table 1, with the settings of the authors' code.

    python benchmarks/covtype_row.py covtype.data.gz --method npair --mix mixup --masking 0.2 --seed 0

The file is UCI's, or an .npz with its columns as `x` (581012, 54) and its classes as `y`.
"""

import argparse
import json
import time

import numpy as np
import torch

import imix
from imix.data import Data, Tensors
from imix.encoders import MLP

TRAIN, CONTINUOUS, GROUPS = 15_120, 10, (10, 4, 40)


def covtype(path: str) -> Data:
    """The first 15,120 rows train, all others test; continuous columns standardised by the whole file."""
    if path.endswith(".npz"):
        arrays = np.load(path)
        x, y = arrays["x"].astype(np.float64), arrays["y"]
    else:
        table = np.loadtxt(path, delimiter=",")
        x, y = table[:, :-1], table[:, -1]
    x[:, :CONTINUOUS] = (x[:, :CONTINUOUS] - x[:, :CONTINUOUS].mean(0)) / x[:, :CONTINUOUS].std(0)
    inputs = torch.from_numpy(x.astype(np.float32))
    labels = torch.from_numpy(np.unique(y, return_inverse=True)[1])
    return Data("covtype", Tensors(inputs[:TRAIN], labels[:TRAIN]), Tensors(inputs[TRAIN:], labels[TRAIN:]))


def main() -> None:
    """Pretrain, evaluate, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--method", default="npair")
    parser.add_argument("--mix", default="mixup")
    parser.add_argument("--masking", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=500)
    given = parser.parse_args()

    def mask_continuous(batch: torch.Tensor) -> torch.Tensor:
        kept = torch.rand(len(batch), CONTINUOUS, device=batch.device) >= given.masking
        return torch.cat([batch[:, :CONTINUOUS] * kept, batch[:, CONTINUOUS:]], 1)

    settings = imix.Settings(
        method=given.method,
        mix=given.mix,
        alpha=2.0,
        temperature=0.1,
        head="mlpbn",
        batch_size=512,
        epochs=given.epochs,
        seed=given.seed,
        standardise=False,
    )
    data = covtype(given.data)
    torch.manual_seed(given.seed)
    started = time.monotonic()
    run = imix.pretrain(data, settings, encoder=MLP(54, groups=GROUPS), augment=mask_continuous)
    trained = time.monotonic()
    linear, knn = imix.evaluate(run, data), imix.evaluate(run, data, "knn")
    found = {
        "linear": linear.accuracy,
        "linear, paper's way": linear.details["paper_accuracy"],
        "knn": knn.accuracy,
        "seconds of training": round(trained - started),
    }
    print(json.dumps(vars(given) | found))


if __name__ == "__main__":
    main()
