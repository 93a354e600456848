"""What must not be trained through: a loss that is not finite, and representations that collapsed."""

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from imix.errors import TrainingError

PATIENCE = 3  # checks in a row that must agree before a run is stopped
EVERY = 100  # steps between checks, or a tenth of a shorter run, but never fewer than FEWEST
FEWEST = 10
CLOSE = 1e-3  # how near to chance (relative) a loss, and how near to 0 a spread, counts as collapse


class Watch:
    """Stops a run that learns nothing, and says why."""

    def __init__(
        self,
        chance: float | None,
        advice: str,
        total_steps: int,
        after: int = 0,
        batch_of: Callable[[int], tuple[str, str]] = lambda step: ("", ""),  # which it was, and what is odd in it
    ) -> None:
        self.chance, self.advice, self.batch_of = chance, advice, batch_of
        self.every = max(FEWEST, min(EVERY, total_steps // 10))
        self.after = after
        self.at_chance = self.without_spread = 0

    def finite(self, losses: list[float], last_step: int) -> None:
        """Raise if one of these losses, those up to `last_step`, is NaN or infinite."""
        for step, loss in enumerate(losses, last_step + 1 - len(losses)):
            if not math.isfinite(loss):
                batch, odd = self.batch_of(step)
                cause = odd or "a learning rate that is too high, or an encoder that overflows in low precision"
                raise TrainingError(
                    f"the loss became {loss} at step {step}{batch}. Likely cause: {cause}. {self.advice}"
                )

    def weights(self, learner: nn.Module, step: int) -> None:
        """Raise if a weight is NaN or infinite."""
        broken = [name for name, weight in learner.named_parameters() if not weight.isfinite().all()]
        if broken:
            raise TrainingError(
                f"the weights {broken[0]} and {len(broken) - 1} more are not finite after step {step}. {self.advice}"
            )

    def features(self, features: Tensor, step: int) -> None:
        """Raise if a feature, in evaluation mode, is NaN or infinite."""
        if not features.isfinite().all():
            raise TrainingError(f"the encoder's features are not finite after step {step}. {self.advice}")

    def due(self, step: int, before: int) -> bool:
        """Whether it is time for a look, at a step, with the record `before` having been written at that one.

        It follows from these alone, so that a resumed run looks when the undisturbed one would.
        """
        return step // self.every > before // self.every

    def alive(self, step: int, loss: float, features: Tensor) -> None:
        """Raise if the loss stands at chance, or all features point the same way, for some checks in a row."""
        if step < self.after:
            return
        stuck = self.chance is not None and abs(loss - self.chance) < CLOSE * self.chance
        self.at_chance = self.at_chance + 1 if stuck else 0
        directions = F.normalize(features.float(), dim=1)
        spread = directions.square().sum(1).mean() - directions.mean(0).square().sum()
        flat = bool(spread.clamp(min=0).sqrt() < CLOSE)
        self.without_spread = self.without_spread + 1 if flat else 0
        if self.at_chance >= PATIENCE:
            raise TrainingError(
                f"collapse: the loss stands at chance, {loss:.4f}, at step {step}: all embeddings are the same, so the "
                f"objective gives no gradient. {self.advice}"
            )
        if self.without_spread >= PATIENCE:
            raise TrainingError(
                f"collapse: at step {step} the encoder gives the same features for every sample. {self.advice}"
            )


def advice(learning_rate: float) -> str:
    """What a user can do about it."""
    return (
        f"Try a lower --lr (the rate peaks at {learning_rate:g}), a longer --warmup or another --temperature, and see "
        "that the samples are not all alike"
    )
