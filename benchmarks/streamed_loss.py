"""The N-pair objective with mixing, streamed against dense, forward and backward, in the same process.

    python benchmarks/streamed_loss.py --sizes 4096 16384 65536

Time is the best of five; memory, on a GPU only, is what the call needs beyond the embeddings and their gradients. The
dense form is left out where its matrix would take more than `--most-gib`.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch import Tensor

from imix import losses, softmax
from imix.mix import Mix


def best_of_five(step: Callable[[], None], device: torch.device) -> tuple[float, float | None]:
    """Seconds, and MiB above what is held before, of a step."""
    times = []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    for _ in range(5):
        started = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    extra = (torch.cuda.max_memory_allocated() - before) / 2**20 if device.type == "cuda" else None
    return min(times), extra


def main() -> None:
    """Print a line of JSON for each size and form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--most-gib", type=float, default=8.0)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for n in given.sizes:
        q, k = (torch.randn(n, given.dim, device=device, requires_grad=True) for _ in range(2))
        q.grad, k.grad = torch.zeros_like(q), torch.zeros_like(k)
        mix = Mix(torch.randperm(n, device=device), torch.rand(n, device=device))

        def step(q: Tensor = q, k: Tensor = k, mix: Mix = mix) -> None:
            losses.npair(q, k, mix, temperature=0.1).backward()

        forms = {"streamed": min(2**24, n * n - 1)} | ({"dense": n * n} if n * n * 4 <= given.most_gib * 2**30 else {})
        for form, largest_block in forms.items():
            softmax.LARGEST_BLOCK = largest_block
            seconds, extra = best_of_five(step, device)
            print(json.dumps({"n": n, "form": form, "seconds": round(seconds, 4), "extra MiB": extra and round(extra)}))


if __name__ == "__main__":
    main()
