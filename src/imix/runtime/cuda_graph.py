"""CUDA graphs: replay a function as one launch, because launching many small kernels takes most of the time."""

from collections.abc import Callable

import torch
from torch import Tensor

from imix.batch import Batch, map_fields

WARMUP_CALLS = 3  # ordinary calls first, so that memory, cuDNN algorithms and optimizer state are allocated


class CudaGraph:
    """Capture a function of GPU batches as a CUDA graph on its fourth call, and replay it from then on.

    Every call must use inputs of the same shapes. Only GPU work is replayed: Python code in the function runs during
    the first calls only, so random numbers must come from torch's generators, and control flow must be fixed.
    """

    def __init__(self, function: Callable[..., Tensor], device: torch.device) -> None:
        self.function, self.device, self.n_calls = function, device, 0
        self.stream = torch.cuda.Stream(device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, *inputs: Batch, before: Callable[[], None] = lambda: None) -> Tensor:
        """Call the function; `before` runs before every call, outside of the graph."""
        if self.n_calls == WARMUP_CALLS:
            self._capture(inputs)
        self.n_calls += 1
        before()
        if self.graph is not None:
            map_fields(lambda static, new: static.copy_(new), self.static_inputs, inputs)
            self.graph.replay()
            return self.static_output.clone()
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            output = self.function(*inputs)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return output

    def _capture(self, inputs: tuple[Batch, ...]) -> None:
        self.static_inputs = map_fields(torch.clone, inputs)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.static_output = self.function(*self.static_inputs)
