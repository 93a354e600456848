"""MoCo v2: keys of a momentum encoder, negatives from a queue of earlier keys."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from imix import losses
from imix.batch import Batch
from imix.distributed import all_ranks, own_offset
from imix.errors import InputError
from imix.methods.method import checked_temperature
from imix.methods.momentum import Momentum
from imix.mix import MixOperator, no_mix


class MoCo(Momentum):
    """MoCo v2 with a queue of K keys; with `mix`, i-Mix on it: the batch's other keys become negatives too.

    >>> learner = MoCo(imix.encoders.build("small", (20,)), mix=imix.MixUp(), queue=64)
    >>> loss = learner(torch.randn(16, 20), torch.randn(16, 20))
    >>> loss.backward(); learner.update()
    """

    queue: Tensor
    cursor: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        mix: MixOperator | None = None,
        *,
        queue: int = 4096,
        temperature: float = 0.2,
        momentum: float = 0.999,
        head: str | None = None,
        dim: int = 128,
        width: int | None = None,
        symmetric: bool = False,
    ) -> None:
        super().__init__(encoder, mix, momentum=momentum, head=head, dim=dim, width=width, symmetric=symmetric)
        if queue < 1:
            raise InputError(f"MoCo's queue must hold at least 1 key; got queue={queue}")
        self.temperature = checked_temperature(temperature)
        self.register_buffer("queue", F.normalize(torch.randn(queue, dim), dim=1))
        self.register_buffer("cursor", torch.zeros((), dtype=torch.long))  # where the oldest key stands
        self.waiting: list[Tensor] = []

    def forward(self, view_1: Batch, view_2: Batch) -> Tensor:
        """The loss of two views of a batch; its keys wait for `update()` to enter the queue."""
        found = []
        for q, own, mix in self.pairs(view_1, view_2):
            keys = all_ranks(own)
            if self.training and torch.is_grad_enabled():
                self.waiting.append(keys)
                while sum(map(len, self.waiting[1:])) >= len(self.queue):  # nobody calls `update()`
                    del self.waiting[0]
            offset = own_offset(len(own))
            found.append(losses.moco(q, keys, self.queue, mix, temperature=self.temperature, offset=offset))
        return torch.stack(found).mean()

    def update(self) -> None:
        """Move the key network and let the waiting keys, of all ranks, replace the oldest ones."""
        super().update()
        for keys in self.waiting:
            self._enqueue(F.normalize(keys.to(self.queue.dtype), dim=1))
        self.waiting = []

    def _enqueue(self, keys: Tensor) -> None:
        places = self.cursor + torch.arange(len(keys), device=keys.device)
        newest = slice(max(0, len(keys) - len(self.queue)), None)
        self.queue[places[newest] % len(self.queue)] = keys[newest]
        self.cursor.copy_((self.cursor + len(keys)) % len(self.queue))

    def chance(self, batch_size: int) -> float:
        """log (K + 1) without `mix`, log (N + K) with it."""
        columns = 1 if self.mix is no_mix else batch_size
        return math.log(len(self.queue) + columns)
