"""Base classes of the methods: an encoder with heads, a mixing operator, and a `forward` that returns the loss."""

import math

import torch
from torch import Tensor, nn

from imix.batch import Batch, checked_size, concatenate, size
from imix.encoders import build_head, eval_mode, infer_width
from imix.errors import InputError
from imix.mix import InputMix, Mix, MixOperator, no_mix
from imix.runtime.distributed import world_size


class Method(nn.Module):
    """Base class of all methods.

    A subclass implements `forward`, which takes `n_views` views of a batch (and the labels, if `supervised`) and
    returns the loss. Call `update()` after every optimizer step.

    Parameters
    ----------
    encoder : nn.Module
        Maps a batch of N samples to features of shape (N, F).
    mix : MixOperator, optional
        Mixing operator, for example `imix.MixUp()`. None trains without i-Mix.
    width : int, optional
        The feature dimension F. By default it is read from the encoder (see `imix.encoders.infer_width`).

    Examples
    --------
    >>> class Alignment(imix.methods.Method):
    ...     def forward(self, view_1, view_2):
    ...         return (self.encoder(view_1) - self.encoder(view_2)).square().mean()
    >>> Alignment(torch.nn.Linear(4, 2))(torch.randn(8, 4), torch.randn(8, 4)).shape
    torch.Size([])
    """

    n_views = 2  # views of each sample that `forward` takes
    supervised = False  # whether `forward` takes labels after the views
    min_batch_size = 1  # smallest global batch (over all ranks) that contains negatives

    def __init__(self, encoder: nn.Module, mix: MixOperator | None = None, width: int | None = None) -> None:
        super().__init__()
        if isinstance(mix, str | type):
            raise InputError(f"mix must be a mixing operator such as imix.MixUp(); got {mix!r}")
        if isinstance(mix, InputMix):
            raise InputError("mix cannot be InputMix, which has no virtual labels; apply it to the views instead")
        self.encoder = encoder
        self.mix: MixOperator = mix or no_mix
        width = width or infer_width(encoder)
        if width is None:
            raise InputError(
                f"cannot infer the feature dimension of {type(encoder).__name__}; pass width=F, or give the encoder "
                "an attribute `width`"
            )
        self.width = width

    def check_views(self, *views: Batch) -> None:
        """Raise an error if the views differ in size or the batch is too small."""
        n = checked_size(*views) * world_size()
        if n < self.min_batch_size:
            raise InputError(f"{type(self).__name__} needs a batch size of at least {self.min_batch_size}; got {n}")

    def apply_mix(self, batch: Batch) -> tuple[Batch, Mix | None]:
        """Return the mixed batch, sample i at index i, and its virtual labels (None without mixing)."""
        result = self.mix(batch)
        if not (isinstance(result, tuple) and len(result) == 2) or size(result[0]) != size(batch):
            raise InputError(
                "mix must return a pair: the mixed batch, with as many samples as its input, and a Mix or None"
            )
        return result

    def update(self) -> None:
        """Update moving averages and queues, if the method has any. Call it after every optimizer step."""

    def chance_loss(self, batch_size: int) -> float | None:
        """Return the loss of a collapsed encoder for this global batch size, or None if it is not a fixed number."""
        return None

    def encode(self, x: Batch) -> Tensor:
        """Return features (N, F) for downstream tasks: the encoder without heads, in eval mode, without gradient."""
        with torch.no_grad(), eval_mode(self.encoder):
            return self.encoder(x)


class ProjectionMethod(Method):
    """Base class of methods with a projection head after the encoder.

    Parameters
    ----------
    encoder : nn.Module
        Maps a batch of N samples to features of shape (N, F).
    mix : MixOperator, optional
        Mixing operator, for example `imix.MixUp()`. None trains without i-Mix.
    head : {"mlpbn", "mlpbn1", "mlp", "linear"}, optional
        Projection head, see `imix.encoders.build_head`. The default is the class attribute `default_head`.
    dim : int
        Dimension of the embeddings, which is the output of the head.
    width : int, optional
        The feature dimension F. By default it is read from the encoder.

    Examples
    --------
    >>> class Similarity(imix.methods.ProjectionMethod):
    ...     def forward(self, view_1, view_2):
    ...         z_1, z_2 = self.project(view_1, view_2)
    ...         return -torch.nn.functional.cosine_similarity(z_1, z_2).mean()
    >>> Similarity(torch.nn.Linear(4, 8), dim=3)(torch.randn(16, 4), torch.randn(16, 4)).shape
    torch.Size([])
    """

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
            raise InputError(f"dim must be at least 1; got {dim}")
        self.head = build_head(head or self.default_head, self.width, self.width, dim)

    def project(self, *batches: Batch) -> tuple[Tensor, ...]:
        """Return the embeddings (N, dim) of each batch.

        All batches go through the network in one pass, so they share batch-normalization statistics.
        """
        z = self.head(self.encoder(concatenate(batches)))  # (sum of N, dim)
        return z.split([size(batch) for batch in batches])


class InBatchMethod(ProjectionMethod):
    """Base class of methods whose negatives are the other keys of the batch.

    Parameters
    ----------
    encoder : nn.Module
        Maps a batch of N samples to features of shape (N, F).
    mix : MixOperator, optional
        Mixing operator, for example `imix.MixUp()`. None trains without i-Mix.
    temperature : float
        Temperature of the softmax over the keys.
    head : {"mlpbn", "mlpbn1", "mlp", "linear"}, optional
        Projection head, see `imix.encoders.build_head`. Default "mlpbn".
    dim : int
        Dimension of the embeddings, which is the output of the head.
    width : int, optional
        The feature dimension F. By default it is read from the encoder.

    Examples
    --------
    >>> class Symmetric(imix.methods.InBatchMethod):
    ...     def forward(self, view_1, view_2):
    ...         q, k = self.project(view_1, view_2)
    ...         pairs = ((q, k), (k, q))
    ...         return sum(imix.losses.npair(*pair, temperature=self.temperature) for pair in pairs) / 2
    >>> Symmetric(torch.nn.Linear(4, 8))(torch.randn(16, 4), torch.randn(16, 4)).shape
    torch.Size([])
    """

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
        self.temperature = check_temperature(temperature)


def check_temperature(temperature: float) -> float:
    """Return the temperature if it is valid."""
    if not 0 < temperature < math.inf:
        raise InputError(f"temperature must be above 0 and finite; got {temperature}")
    return temperature
