"""`keep_best` and `patience`: the encoder is measured after every epoch, without the test set; the best one is kept."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from imix.batch import map_fields, to_float
from imix.data import Data
from imix.errors import InputError
from imix.run import checkpoint
from imix.runtime.distributed import mean_over_ranks
from imix.runtime.rng import BEFORE_TRAINING, epoch_order, seed_all
from imix.train.health import MAX_SAMPLES, health
from imix.train.knn_probe import build_knn_probe
from imix.train.setup import TrainingSetup

BEST_ENCODER = "best_encoder.safetensors"


class BestEncoder:
    """The best encoder so far, by `measure` (higher is better), and the epoch after which it was measured."""

    def __init__(self, model: nn.Module, measure: Callable[[], float], metric: str, patience: int) -> None:
        self.model, self.measure, self.metric, self.patience = model, measure, metric, patience
        self.value, self.epoch, self.weights = -math.inf, 0, dict[str, Tensor]()

    def update(self, epoch: int) -> dict[str, float]:
        """Measure the encoder after `epoch` epochs, keep it if it is better, and return the metric for the log."""
        value = self.measure()
        if value > self.value:
            weights = self.model.state_dict().items()
            self.value, self.epoch = value, epoch
            self.weights = {name: weight.detach().cpu().clone().contiguous() for name, weight in weights}
        return {f"keep_best_{self.metric}": abs(value)}

    def should_stop(self, epoch: int) -> bool:
        """Whether there was no better encoder for `patience` epochs."""
        return self.patience > 0 and epoch - self.epoch >= self.patience

    def state(self) -> dict[str, Any]:
        """The part of a checkpoint that `restore` loads."""
        return {"best": {"value": self.value, "epoch": self.epoch, "weights": self.weights}}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint; raises InputError unless its best encoder fits the model."""
        best = state.get("best")
        checkpoint.check_names("best encoder", best, self.state()["best"])
        assert best is not None
        value, epoch, expected = best["value"], best["epoch"], self.model.state_dict()
        if not (isinstance(value, float) and isinstance(epoch, int) and 0 <= epoch <= state["epoch"] + 1):
            raise InputError("the checkpoint does not match the run: its best epoch is out of range")
        checkpoint.check_names("best weights", best["weights"], expected if epoch else {})
        for name, weight in best["weights"].items():
            checkpoint.check_tensor(f"best {name}", weight, expected[name])
        self.value, self.epoch, self.weights = value, epoch, best["weights"]


def build_best_encoder(setup: TrainingSetup, data: Data) -> BestEncoder | None:
    """Return the `BestEncoder` that `keep_best` selects, or None."""
    settings, device = setup.settings, setup.device
    if settings.keep_best is None:
        return None
    metric = settings.keep_best
    if metric == "knn":
        accuracy = build_knn_probe(setup.model, data, settings, device, held_out=True)

        def measure() -> float:
            return accuracy()["knn"]
    else:
        rows = epoch_order(settings.seed, BEFORE_TRAINING, len(setup.source))[:MAX_SAMPLES]
        batch = next(setup.source.batches([rows]))[0]

        def measure() -> float:
            seed_all(settings.seed, BEFORE_TRAINING)  # the same views in every epoch
            x = to_float(map_fields(lambda field: field.to(device), batch))
            first, second = (setup.learner.encode(setup.view(x)) for _ in range(2))
            return health(first, second)[metric] * (-1 if metric == "alignment" else 1)

    def measure_on_all_ranks() -> float:
        return float(mean_over_ranks(torch.tensor(measure(), dtype=torch.float64, device=device)))

    return BestEncoder(setup.model, measure_on_all_ranks, metric, settings.patience)
