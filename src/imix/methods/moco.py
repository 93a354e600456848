"""MoCo v2: keys from a momentum encoder, negatives from a queue of earlier keys."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from imix import losses
from imix.batch import Batch
from imix.errors import InputError
from imix.methods.method import check_temperature
from imix.methods.momentum import MomentumMethod
from imix.mix import MixOperator, no_mix
from imix.runtime.distributed import gather_rows, row_offset


class MoCo(MomentumMethod):
    """MoCo v2 with a queue of K keys, with i-Mix if `mix` is given.

    With i-Mix, the other keys of the batch are negatives too.

    Parameters
    ----------
    encoder : nn.Module
        Maps a batch of N samples to features of shape (N, F).
    mix : MixOperator, optional
        Mixing operator, for example `imix.MixUp()`. None trains without i-Mix.
    queue : int
        Number of keys K in the queue.
    temperature : float
        Temperature of the softmax over the keys.
    momentum : float
        Weight of the old parameters in each update of the momentum encoder, between 0 and 1.
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
    >>> learner = MoCo(imix.encoders.build("small", (20,)), mix=imix.MixUp(), queue=64)
    >>> loss = learner(torch.randn(16, 20), torch.randn(16, 20))
    >>> loss.backward(); learner.update()
    """

    queue: Tensor  # (K, dim), normalized
    cursor: Tensor  # (): index of the oldest key, which is overwritten next

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
            raise InputError(f"queue must be at least 1; got {queue}")
        self.temperature = check_temperature(temperature)
        self.register_buffer("queue", F.normalize(torch.randn(queue, dim), dim=1))
        self.register_buffer("cursor", torch.zeros((), dtype=torch.long))
        self.pending_keys: list[Tensor] = []  # keys that enter the queue at the next `update()`

    def forward(self, view_1: Batch, view_2: Batch) -> Tensor:
        """Return the loss of two views of one batch of N samples; their keys enter the queue at `update()`."""
        direction_losses = []
        for q, k, mix in self.encode_pairs(view_1, view_2):  # q, k: (N, dim)
            keys = gather_rows(k)  # (W * N, dim): the keys of all W ranks
            if self.training and torch.is_grad_enabled():
                self.pending_keys.append(keys)
                # Bounds memory if update() is never called.
                while sum(map(len, self.pending_keys[1:])) >= len(self.queue):
                    del self.pending_keys[0]
            offset = row_offset(len(k))
            direction_losses.append(losses.moco(q, keys, self.queue, mix, temperature=self.temperature, offset=offset))
        return torch.stack(direction_losses).mean()

    def update(self) -> None:
        """Update the momentum encoder and replace the oldest keys of the queue with the pending ones."""
        super().update()
        for keys in self.pending_keys:
            self._enqueue(F.normalize(keys.to(self.queue.dtype), dim=1))
        self.pending_keys = []

    def _enqueue(self, keys: Tensor) -> None:
        rows = self.cursor + torch.arange(len(keys), device=keys.device)
        newest = slice(max(0, len(keys) - len(self.queue)), None)  # at most K keys fit into the queue
        self.queue[rows[newest] % len(self.queue)] = keys[newest]
        self.cursor.copy_((self.cursor + len(keys)) % len(self.queue))

    def chance_loss(self, batch_size: int) -> float:
        """Return the loss of a collapsed encoder: log(K + 1) without `mix`, log(K + N) with it."""
        batch_keys = 1 if self.mix is no_mix else batch_size
        return math.log(len(self.queue) + batch_keys)
