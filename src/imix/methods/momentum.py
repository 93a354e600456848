"""Base class of MoCo and BYOL: a second network, a moving average of the first, computes the keys."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from imix.batch import Batch, concatenate, first_field, map_fields, size
from imix.errors import InputError
from imix.methods.method import ProjectionMethod
from imix.mix import Mix, MixOperator
from imix.runtime import distributed
from imix.runtime.distributed import gather_rows
from imix.runtime.sync_bn import CPUSyncBatchNorm


class MomentumMethod(ProjectionMethod):
    """Base class of methods whose keys come from a moving average of the encoder and the head.

    Only parameters are averaged. The key network runs in training mode and keeps its own batch-normalization
    statistics, as in the authors' code. Keys have no gradient. With several ranks and batch normalization that is not
    synchronized, the samples are shuffled across ranks before the keys are computed (shuffle-BN).

    Parameters
    ----------
    encoder : nn.Module
        Maps a batch of N samples to features of shape (N, F).
    mix : MixOperator, optional
        Mixing operator, for example `imix.MixUp()`. None trains without i-Mix.
    momentum : float
        Weight of the old parameters in each update of the key network, between 0 and 1.
    head : {"mlpbn", "mlpbn1", "mlp", "linear"}, optional
        Projection head, see `imix.encoders.build_head`. Default "mlpbn1".
    dim : int
        Dimension of the embeddings, which is the output of the head.
    width : int, optional
        The feature dimension F. By default it is read from the encoder.
    symmetric : bool
        Use both views as anchors and as keys, at twice the cost. By default view 1 provides the anchors and view 2
        the keys, as in the paper.

    Examples
    --------
    >>> class Distance(imix.methods.MomentumMethod):
    ...     def forward(self, view_1, view_2):
    ...         return sum((q - k).square().mean() for q, k, mix in self.encode_pairs(view_1, view_2))
    >>> learner = Distance(torch.nn.Linear(4, 8), momentum=0.99)
    >>> learner(torch.randn(16, 4), torch.randn(16, 4)).backward(); learner.update()
    """

    default_head = "mlpbn1"

    def __init__(
        self,
        encoder: nn.Module,
        mix: MixOperator | None = None,
        *,
        momentum: float = 0.999,
        head: str | None = None,
        dim: int = 128,
        width: int | None = None,
        symmetric: bool = False,
    ) -> None:
        super().__init__(encoder, mix, head=head, dim=dim, width=width)
        if not 0 <= momentum <= 1:
            raise InputError(f"momentum must be between 0 and 1; got {momentum}")
        self.momentum, self.symmetric = momentum, symmetric
        self.key_encoder = copy.deepcopy(self.encoder).requires_grad_(False)
        self.key_head = copy.deepcopy(self.head).requires_grad_(False)

    def encode_pairs(self, view_1: Batch, view_2: Batch) -> Iterator[tuple[Tensor, Tensor, Mix | None]]:
        """Return anchors (N, dim), their keys (N, dim) and virtual labels: one triple, or two if `symmetric`."""
        self.check_views(view_1, view_2)
        directions = [(view_1, view_2), (view_2, view_1)] if self.symmetric else [(view_1, view_2)]
        mixed = [self.apply_mix(anchors) for anchors, _ in directions]
        q = self.project(*(anchors for anchors, _ in mixed))
        k = self.keys(*(keys for _, keys in directions))
        return zip(q, k, (mix for _, mix in mixed), strict=True)

    @torch.no_grad()
    def keys(self, *views: Batch) -> tuple[Tensor, ...]:
        """Return the keys (N, dim) of each view, computed in one pass of the key network."""
        batch, sizes = concatenate(views), [size(view) for view in views]
        if not self._needs_shuffle():
            return self.key_head(self.key_encoder(batch)).split(sizes)
        order, inverse = distributed.shared_permutation(size(batch), first_field(batch).device)
        batch = distributed.local_rows(map_fields(gather_rows, batch), order)
        shuffled = gather_rows(self.key_head(self.key_encoder(batch)))
        return distributed.local_rows(shuffled, inverse).split(sizes)

    @torch.no_grad()
    def update(self) -> None:
        """Move the key network towards the trained network."""
        key: list[Tensor] = [*self.key_encoder.parameters(), *self.key_head.parameters()]
        trained: list[Tensor] = [*self.encoder.parameters(), *self.head.parameters()]
        if key and 0 < 1 - self.momentum < torch.finfo(key[0].dtype).eps:
            raise InputError(
                f"momentum={self.momentum} is too close to 1 for a moving average in {key[0].dtype}; keep the learner "
                "in float32 and use torch.autocast"
            )
        torch._foreach_lerp_(key, trained, 1 - self.momentum)

    def _needs_shuffle(self) -> bool:
        """Whether several ranks train and any batch normalization of the key network is not synchronized."""
        if distributed.world_size() == 1 or not self.training:
            return False
        modules = [*self.key_encoder.modules(), *self.key_head.modules()]
        norms = [module for module in modules if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        return any(not isinstance(norm, CPUSyncBatchNorm | nn.SyncBatchNorm) for norm in norms)
