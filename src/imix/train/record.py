"""Calls without their launches: many small kernels take longer to launch than to run."""

from collections.abc import Callable

import torch
from torch import Tensor

from imix.batch import Batch, map_fields

BEFORE_RECORDING = 3  # calls made as they are, in which memory, algorithms and an optimiser's state are settled


class Recorded:
    """A function of batches on a GPU, whose fourth call is recorded as a CUDA graph and replayed from then on.

    Each call brings its own values, in the same shapes. What Python does between kernels is not repeated, so a function
    that draws or decides outside torch's generators must not be recorded.
    """

    def __init__(self, function: Callable[..., Tensor], device: torch.device) -> None:
        self.function, self.device, self.called = function, device, 0
        self.stream = torch.cuda.Stream(device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, *given: Batch, before: Callable[[], None] = lambda: None) -> Tensor:
        """What the function gives; `before` is called each time, and not recorded."""
        if self.called == BEFORE_RECORDING:
            self._record(given)
        self.called += 1
        before()
        if self.graph is not None:
            map_fields(lambda held, new: held.copy_(new), self.held, given)
            self.graph.replay()
            return self.result.clone()
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            result = self.function(*given)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return result

    def _record(self, given: tuple[Batch, ...]) -> None:
        self.held = map_fields(torch.clone, given)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.result = self.function(*self.held)
