"""One step of training, from a batch to moved weights; on a GPU recorded once and replayed."""

from typing import Any

import torch
from torch import Tensor, nn

from imix.batch import Batch, map_fields
from imix.methods import Method
from imix.train.randomness import seed_all

BEFORE_RECORDING = 3  # steps taken as they are, in which memory, algorithms and the optimiser's state are settled


class Step:
    """Loss, gradient, optimiser, moving averages.

    A step of many small kernels takes longer to launch than to run. Where `recorded`, the fourth step is recorded as a
    CUDA graph and replayed from then on, each time with its own batch, learning rate and random numbers: the same
    kernels without their launches. What Python does between them is not repeated, so objectives that draw or decide
    outside torch's generators must not be recorded.
    """

    def __init__(
        self,
        objective: nn.Module,
        learner: Method,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        bf16: bool,
        recorded: bool,
    ) -> None:
        self.objective, self.learner, self.optimizer = objective, learner, optimizer
        self.device, self.bf16 = device, bf16
        self.until_recorded = BEFORE_RECORDING if recorded else -1
        self.graph: Any = None
        self.stream: Any = torch.cuda.Stream(device) if recorded else None
        # A graph reads the rate from memory; a number would be recorded with it.
        self.lr: Any = torch.zeros((), device=device) if recorded else None
        self.inputs: Batch = None
        self.labels: Tensor | None = None
        self.loss: Tensor = torch.empty(0)

    def __call__(self, batch: Batch, labels: Tensor | None, lr: float, seeds: tuple[int, ...]) -> Tensor:
        """Take a step with that learning rate and the random numbers of those seeds; gives the loss."""
        if self.lr is not None:
            self.lr.fill_(lr)
        for group in self.optimizer.param_groups:
            group["lr"] = lr if self.lr is None else self.lr
        if self.until_recorded == 0 and self.graph is None:
            self._record(batch, labels)
        seed_all(*seeds)
        if self.graph is not None:
            map_fields(lambda held, new: held.copy_(new), self.inputs, batch)
            if self.labels is not None:
                self.labels.copy_(labels)  # type: ignore[arg-type]
            self.graph.replay()
            return self.loss.clone()
        self.until_recorded -= 1
        if self.stream is None:
            return self._take(batch, labels)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            loss = self._take(batch, labels)
        torch.cuda.current_stream().wait_stream(self.stream)
        return loss

    def _take(self, batch: Batch, labels: Tensor | None) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss: Tensor = self.objective(batch, labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.learner.update()
        return loss.detach()

    def _record(self, batch: Batch, labels: Tensor | None) -> None:
        self.inputs = map_fields(torch.clone, batch)
        self.labels = None if labels is None else labels.clone()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.loss = self._take(self.inputs, self.labels)
