"""The second network of MoCo and BYOL: a moving average of the first, which gives the keys."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from imix import distributed
from imix.batch import Batch, concatenate, fields, map_fields, size
from imix.distributed import SyncBatchNorm, all_ranks
from imix.errors import InputError
from imix.methods.method import Projected
from imix.mix import Mix, MixOperator


class Momentum(Projected):
    """A method whose keys come from a moving average of encoder and head.

    Only parameters are averaged. Batch-normalisation buffers of the key network are its own: it runs in training mode
    and gathers its own statistics (so did the authors'). Keys carry no gradient. Where there are several ranks and
    batch normalisation is not synced, keys are made from samples shuffled over ranks (shuffle-BN).

    View 1 anchors and view 2 gives the keys, as in the paper; with `symmetric` each view does both, at twice the cost.
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
            raise InputError(f"momentum must lie within 0 and 1; got {momentum}")
        self.momentum, self.symmetric = momentum, symmetric
        self.key_encoder = copy.deepcopy(self.encoder).requires_grad_(False)
        self.key_head = copy.deepcopy(self.head).requires_grad_(False)

    def pairs(self, view_1: Batch, view_2: Batch) -> Iterator[tuple[Tensor, Tensor, Mix | None]]:
        """Anchors, the keys they belong to, and the anchors' virtual labels: for one direction or both."""
        self.check(view_1, view_2)
        directions = [(view_1, view_2), (view_2, view_1)] if self.symmetric else [(view_1, view_2)]
        mixed = [self.mixed(anchors) for anchors, _ in directions]
        q = self.project(*(anchors for anchors, _ in mixed))
        k = self.keys(*(keys for _, keys in directions))
        return zip(q, k, (mix for _, mix in mixed), strict=True)

    @torch.no_grad()
    def keys(self, *views: Batch) -> tuple[Tensor, ...]:
        """Keys of each view, (N, dim), in one pass."""
        batch, sizes = concatenate(views), [size(view) for view in views]
        if not self._shuffles():
            return self.key_head(self.key_encoder(batch)).split(sizes)
        order, back = distributed.shuffled(size(batch), fields(batch)[0].device)
        batch = distributed.rows_of_this_rank(map_fields(all_ranks, batch), order)
        shuffled = all_ranks(self.key_head(self.key_encoder(batch)))
        return distributed.rows_of_this_rank(shuffled, back).split(sizes)

    @torch.no_grad()
    def update(self) -> None:
        """Move the key network towards the trained one."""
        keys: list[Tensor] = [*self.key_encoder.parameters(), *self.key_head.parameters()]
        trained: list[Tensor] = [*self.encoder.parameters(), *self.head.parameters()]
        if keys and 0 < 1 - self.momentum < torch.finfo(keys[0].dtype).eps:
            raise InputError(
                f"a moving average in {keys[0].dtype} stands still at momentum {self.momentum}; keep the learner in "
                "float32 and use torch.autocast"
            )
        torch._foreach_lerp_(keys, trained, 1 - self.momentum)

    def _shuffles(self) -> bool:
        if distributed.world_size() == 1 or not self.training:
            return False
        parts = [*self.key_encoder.modules(), *self.key_head.modules()]
        norms = [part for part in parts if isinstance(part, nn.modules.batchnorm._BatchNorm)]
        return any(not isinstance(norm, SyncBatchNorm | nn.SyncBatchNorm) for norm in norms)
