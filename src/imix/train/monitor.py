"""Stops a run whose loss is not finite or whose representation has collapsed, and says why."""

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from imix.errors import TrainingError

PATIENCE = 3  # consecutive checks that must agree before a run is stopped
CHECK_EVERY = 100  # steps between checks; a tenth of the run if that is shorter, but at least MIN_CHECK_EVERY
MIN_CHECK_EVERY = 10
COLLAPSE_TOLERANCE = 1e-3  # relative distance of a loss to chance, or spread of the features, that counts as collapse


class TrainingMonitor:
    """Raises `TrainingError` when a run cannot recover.

    `chance_loss` is the loss of a constant encoder, if it is known; `advice` is added to every message; checks for
    collapse start after `warmup_steps`. `describe_batch` describes the batch of a step and any unusual values in it.
    """

    def __init__(
        self,
        chance_loss: float | None,
        advice: str,
        total_steps: int,
        warmup_steps: int = 0,
        describe_batch: Callable[[int], tuple[str, str]] = lambda step: ("", ""),
    ) -> None:
        self.chance_loss, self.advice, self.describe_batch = chance_loss, advice, describe_batch
        self.every = max(MIN_CHECK_EVERY, min(CHECK_EVERY, total_steps // 10))
        self.warmup_steps = warmup_steps
        self.checks_at_chance = self.checks_without_spread = 0

    def check_losses(self, losses: list[float], last_step: int) -> None:
        """Raise if one of the losses, which end at `last_step`, is NaN or infinite."""
        for step, loss in enumerate(losses, last_step + 1 - len(losses)):
            if not math.isfinite(loss):
                batch, unusual_values = self.describe_batch(step)
                cause = unusual_values or "the learning rate is too high, or the encoder overflows in low precision"
                raise TrainingError(
                    f"the loss became {loss} at step {step}{batch}. Likely cause: {cause}. {self.advice}"
                )

    def check_weights(self, learner: nn.Module, step: int) -> None:
        """Raise if a weight is NaN or infinite."""
        broken = [name for name, weight in learner.named_parameters() if not weight.isfinite().all()]
        if broken:
            more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
            raise TrainingError(f"the weights {broken[0]}{more} are not finite after step {step}. {self.advice}")

    def is_due(self, step: int, previous_record: int) -> bool:
        """Whether to check at this step, given the step of the previous record.

        Depends on the steps alone, so that a resumed run checks exactly when the uninterrupted one would.
        """
        return step // self.every > previous_record // self.every

    def check_features(self, step: int, loss: float, features: Tensor) -> None:
        """Raise if a feature, computed in evaluation mode, is not finite, or if the run has collapsed.

        That is, if the loss stays at chance, or all features are parallel, for several checks in a row.
        """
        if not features.isfinite().all():
            raise TrainingError(f"the encoder's features are not finite after step {step}. {self.advice}")
        if step < self.warmup_steps:
            return
        chance = math.nan if self.chance_loss is None else self.chance_loss
        at_chance = math.isclose(loss, chance, rel_tol=COLLAPSE_TOLERANCE)
        self.checks_at_chance = self.checks_at_chance + 1 if at_chance else 0
        directions = F.normalize(features.float(), dim=1)
        spread = directions.square().sum(1).mean() - directions.mean(0).square().sum()
        no_spread = bool(spread.clamp(min=0).sqrt() < COLLAPSE_TOLERANCE)
        self.checks_without_spread = self.checks_without_spread + 1 if no_spread else 0
        if self.checks_at_chance >= PATIENCE:
            raise TrainingError(
                f"collapse: the loss stays at chance ({loss:.4f}) at step {step}: all embeddings are the same, so "
                f"there is no gradient. {self.advice}"
            )
        if self.checks_without_spread >= PATIENCE:
            raise TrainingError(
                f"collapse: at step {step} the encoder returns the same features for every sample. {self.advice}"
            )


def training_advice(peak_lr: float) -> str:
    """What a user can try when training fails."""
    return (
        f"Try a lower `lr` (it peaks at {peak_lr:g}), a longer `warmup` or another `temperature`, and check that the "
        "samples are not all identical"
    )
