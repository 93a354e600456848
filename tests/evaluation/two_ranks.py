"""What the two processes of the tests with ranks compute, and the same for one process."""

import os
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import nn

import imix
from imix.evaluation import LinearPaper

OPTIONS: dict[str, Any] = {"device": "cpu", "labels_per_class": (10,), "draws": 2}
PROTOCOLS = {
    None: {},
    "linear": {},
    "knn": {"inputs": True},
    "pinv": {},
    "fed": {},
    "linear-paper": {"hyperparameters": LinearPaper(epochs=2)},
}


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows (3,500, 6), which are four batches, and three classes."""
    x = torch.randn(3500, 6, generator=torch.Generator().manual_seed(0))
    return x, x[:, 0].argsort().argsort() * 3 // len(x)


class Counting(nn.Module):
    """An encoder that counts the samples it encodes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.encoded = nn.Linear(6, 16), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.encoded += len(x)
        return self.linear(x).relu()


def work(folder: Path) -> dict[str, Any]:
    """Embed and evaluate, as one rank or alone."""
    x, y = data()
    encoder = Counting()
    results: dict[str, Any] = {"embedded": imix.embed(encoder, x, device="cpu")}
    results["encoded"] = encoder.encoded
    results["few rows"] = imix.embed(encoder, x[:5], out=folder / "few.npy", device="cpu")
    for protocol, options in PROTOCOLS.items():
        result = imix.evaluate(encoder, x, protocol, labels=y, **(options if protocol else OPTIONS))
        results[f"{protocol}"] = result
    try:
        imix.evaluate(encoder, x, "linear", labels=torch.zeros(len(x)))
    except imix.InputError as error:
        results["error"] = str(error)
    return results


def run_rank(rank: int, folder: Path, port: int) -> None:
    """Do the work on one rank and save the results."""
    torch.set_num_threads(1)
    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    (folder / f"{rank}.pkl").write_bytes(pickle.dumps(work(folder)))
