"""The contrastive objective with mixing, dense, in blocks and as Triton kernels, forward and backward, taking turns.

    python benchmarks/streamed_loss.py --sizes 4096 16384 65536 4096+65536

A size is a batch for N-pair; N+K is a batch of N for MoCo with a queue of K. Time is the median of several turns;
memory, on a GPU only, is what the call needs beyond the embeddings and their gradients. The dense form is left out
where its matrix would take more than `--most-gib`; without a GPU there are no kernels.
"""

import argparse
import json
import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from clock import table, taking_turns
from torch import Tensor

from imix import losses, softmax
from imix.mix import Mix

BLOCK = softmax.LARGEST_BLOCK


def extra_memory(way: Callable[[], None], device: torch.device) -> int | None:
    """MiB above what is held before."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    way()
    return round((torch.cuda.max_memory_allocated() - before) / 2**20)


def make_ways(n: int, queued: int, dim: int, most: float, device: torch.device) -> dict[str, Callable[[], None]]:
    """The objective in each of its forms, on the same embeddings."""
    q, k, queue = (F.normalize(torch.randn(size, dim, device=device), dim=1) for size in (n, n, queued))
    q.requires_grad_().grad = torch.zeros_like(q)
    if not queued:
        k.requires_grad_().grad = torch.zeros_like(k)
    mix = Mix(torch.randperm(n, device=device), torch.rand(n, device=device))

    def in_form(fused: bool, block: int) -> Callable[[], None]:
        def way() -> None:
            vars(softmax).update(TRITON=fused, LARGEST_BLOCK=block)
            loss: Tensor
            if queued:
                loss = losses.moco(q, k, queue, mix, temperature=0.1)
            else:
                loss = losses.npair(q, k, mix, temperature=0.1)
            loss.backward()

        return way

    entries = n * (n + queued)
    ways = {"blocks": in_form(False, min(BLOCK, entries - 1))}
    if device.type == "cuda":
        ways["kernels"] = in_form(True, min(BLOCK, entries - 1))
    if entries * 4 <= most * 2**30:
        ways["dense"] = in_form(False, entries)
    return ways


def main() -> None:
    """Print a line of JSON for each size and form, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["1024", "4096", "512+4096"])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--most-gib", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        print("no GPU here: the kernels are left out")
    lines = []
    for size in given.sizes:
        n, _, queued = size.partition("+")
        ways = make_ways(int(n), int(queued or 0), given.dim, given.most_gib, device)
        times = taking_turns(ways, device, given.rounds)
        for form, taken in times.items():
            ms, memory = round(1e3 * statistics.median(taken), 2), extra_memory(ways[form], device)
            print(json.dumps({"size": size, "form": form, "ms": ms, "extra MiB": memory}), flush=True)
            lines.append([size, form, ms, "-" if memory is None else memory])
    print(table(["N+K", "form", "ms", "extra MiB"], lines))


if __name__ == "__main__":
    main()
