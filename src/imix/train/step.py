"""One step of training, from a batch to moved weights; on a GPU recorded once and replayed."""

from typing import Any

import torch
from torch import Tensor, nn

from imix.batch import Batch, map_fields
from imix.methods import Method
from imix.train.randomness import seed_all

BEFORE_RECORDING = 3  # steps taken as they are, in which memory, algorithms and the optimiser's state are settled


class Step:
    """Loss, gradient, optimiser, moving averages."""

    def __init__(
        self,
        objective: nn.Module,
        learner: Method,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        bf16: bool,
    ) -> None:
        self.objective, self.learner, self.optimizer = objective, learner, optimizer
        self.device, self.bf16 = device, bf16

    def __call__(self, batch: Batch, labels: Tensor | None, lr: float, seeds: tuple[int, ...]) -> Tensor:
        """Take a step with that learning rate and the random numbers of those seeds; gives the loss."""
        self._set_rate(lr)
        seed_all(*seeds)
        return self._take(batch, labels)

    def _set_rate(self, lr: float | Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def _take(self, batch: Batch, labels: Tensor | None) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss: Tensor = self.objective(batch, labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.learner.update()
        return loss.detach()


class RecordedStep(Step):
    """The same step without its launches: a step of many small kernels takes longer to launch than to run.

    The fourth step is recorded as a CUDA graph and replayed from then on, each time with its own batch, learning rate
    and random numbers. What Python does between kernels is not repeated, so objectives that draw or decide outside
    torch's generators must not be recorded.
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.taken = 0
        self.stream = torch.cuda.Stream(self.device)
        self.graph: Any = None
        # A graph reads these from memory: numbers would be recorded with it.
        self.lr = torch.zeros((), device=self.device)
        self.held: Batch = None
        self.loss = self.lr

    def __call__(self, batch: Batch, labels: Tensor | None, lr: float, seeds: tuple[int, ...]) -> Tensor:
        """As every step."""
        self.lr.fill_(lr)
        self._set_rate(self.lr)
        given = (batch,) if labels is None else (batch, labels)
        if self.taken == BEFORE_RECORDING:
            self._record(given)
        self.taken += 1
        seed_all(*seeds)
        if self.graph is not None:
            map_fields(lambda held, new: held.copy_(new), self.held, given)
            self.graph.replay()
            return self.loss.clone()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            loss = self._take(batch, labels)
        torch.cuda.current_stream().wait_stream(self.stream)
        return loss

    def _record(self, given: Batch) -> None:
        self.held = map_fields(torch.clone, given)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.loss = self._take(self.held[0], self.held[1] if len(self.held) > 1 else None)
