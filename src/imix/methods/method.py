"""What every method is: an encoder with heads, a mixing operator, one forward that gives the loss, and `update()`."""

import math

import torch
from torch import Tensor, nn

from imix.batch import Batch, concatenate, same_size, size
from imix.distributed import world_size
from imix.encoders import evaluating, width_of
from imix.encoders import head as make_head
from imix.errors import InputError
from imix.mix import InputMix, Mix, MixOperator, no_mix


class Method(nn.Module):
    """Base of all methods.

    `encoder` is any module giving (N, F). `width` is that F; encoders that do not say it themselves need it given.
    Call the method with views to get the loss; after the optimiser's step call `update()`.
    """

    views = 2  # how many views of each sample `forward` takes
    supervised = False  # whether `forward` takes labels too
    fewest = 1  # samples, on all ranks together, that give it something to learn

    def __init__(self, encoder: nn.Module, mix: MixOperator | None = None, width: int | None = None) -> None:
        super().__init__()
        if isinstance(mix, str | type):
            raise InputError(f"mix must be an operator such as imix.MixUp(); got {mix!r}")
        if isinstance(mix, InputMix):
            raise InputError("InputMix mixes inputs and no labels: apply it to the views before the method sees them")
        self.encoder = encoder
        self.mix: MixOperator = mix or no_mix
        found = width or width_of(encoder)
        if found is None:
            raise InputError(
                f"cannot tell how many features {type(encoder).__name__} gives; say it with width=..., or give the "
                "encoder an attribute `width`"
            )
        self.width = found

    def check(self, *views: Batch) -> None:
        """Refuse views that do not belong together, or that are too few to contrast."""
        n = same_size(*views) * world_size()
        if n < self.fewest:
            raise InputError(f"{type(self).__name__} needs a batch of at least {self.fewest}; got {n}")

    def mixed(self, batch: Batch) -> tuple[Batch, Mix | None]:
        """The batch as the operator mixes it, every sample in its place, and how."""
        found = self.mix(batch)
        if not (isinstance(found, tuple) and len(found) == 2) or size(found[0]) != size(batch):
            raise InputError("an operator gives a pair: as many mixed samples as there were, and a Mix, or None")
        return found

    def update(self) -> None:
        """Follow the optimiser's step: moving averages and queues, where there are any."""

    def chance(self, batch_size: int) -> float | None:
        """The loss of an encoder that gives the same vector for everything, given the global batch size."""
        return None

    def encode(self, x: Batch) -> Tensor:
        """Features for downstream tasks, (N, F): the encoder without heads, in evaluation mode, without gradient."""
        with torch.no_grad(), evaluating(self.encoder):
            return self.encoder(x)


class Projected(Method):
    """A method whose encoder is followed by a projection head."""

    default_head = "mlpbn"

    def __init__(
        self,
        encoder: nn.Module,
        mix: MixOperator | None = None,
        *,
        head: str | None = None,
        dim: int = 128,
        width: int | None = None,
    ) -> None:
        super().__init__(encoder, mix, width)
        if dim < 1:
            raise InputError(f"an embedding has at least 1 number; got dim={dim}")
        self.head = make_head(head or self.default_head, self.width, self.width, dim)

    def project(self, *batches: Batch) -> tuple[Tensor, ...]:
        """Embeddings of each batch, (N, dim), in one pass: all of them share batch-normalisation statistics."""
        z = self.head(self.encoder(concatenate(batches)))
        return z.split([size(batch) for batch in batches])


class InBatch(Projected):
    """A projected method with a softmax, at some temperature, over the keys of the batch."""

    def __init__(
        self,
        encoder: nn.Module,
        mix: MixOperator | None = None,
        *,
        temperature: float = 0.2,
        head: str | None = None,
        dim: int = 128,
        width: int | None = None,
    ) -> None:
        super().__init__(encoder, mix, head=head, dim=dim, width=width)
        self.temperature = checked_temperature(temperature)


def checked_temperature(temperature: float) -> float:
    """The temperature of a softmax, if it can be one."""
    if not 0 < temperature < math.inf:
        raise InputError(f"temperature must be a number above 0; got {temperature}")
    return temperature
