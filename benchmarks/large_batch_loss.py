"""The contrastive loss with mixing for large batches, forward and backward: dense, in blocks, and as Triton kernels.

    python benchmarks/large_batch_loss.py --sizes 4096 16384 65536 4096+65536

A size N is a batch of N for N-pair; N+K is a batch of N for MoCo with a queue of K. Time is the median over rounds.
Memory (GPU only) is what the call needs in addition to the embeddings and their gradients. The dense form is skipped if
its matrix would exceed `--max-dense-gib`; the kernels need a GPU.
"""

import argparse
import json
import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from timing import format_table, time_in_rounds
from torch import Tensor

from imix import losses
from imix.mix import Mix
from imix.runtime import logsumexp

BLOCK = logsumexp.LARGEST_BLOCK


def extra_memory(function: Callable[[], None], device: torch.device) -> int | None:
    """Return the peak GPU memory in MiB that a call needs in addition; None on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    return round((torch.cuda.max_memory_allocated() - before) / 2**20)


def build_variants(
    n: int, queue_size: int, dim: int, max_dense_gib: float, device: torch.device
) -> dict[str, Callable[[], None]]:
    """Return forward and backward pass of the loss in each form, on the same embeddings."""
    q, k, queue = (F.normalize(torch.randn(size, dim, device=device), dim=1) for size in (n, n, queue_size))
    q.requires_grad_().grad = torch.zeros_like(q)
    if not queue_size:
        k.requires_grad_().grad = torch.zeros_like(k)
    mix = Mix(torch.randperm(n, device=device), torch.rand(n, device=device))

    def build_variant(use_kernels: bool, largest_block: int) -> Callable[[], None]:
        def forward_and_backward() -> None:
            vars(logsumexp).update(TRITON=use_kernels, LARGEST_BLOCK=largest_block)
            loss: Tensor
            if queue_size:
                loss = losses.moco(q, k, queue, mix, temperature=0.1)
            else:
                loss = losses.npair(q, k, mix, temperature=0.1)
            loss.backward()

        return forward_and_backward

    entries = n * (n + queue_size)
    variants = {"blocks": build_variant(False, min(BLOCK, entries - 1))}
    if device.type == "cuda":
        variants["kernels"] = build_variant(True, min(BLOCK, entries - 1))
    if entries * 4 <= max_dense_gib * 2**30:
        variants["dense"] = build_variant(False, entries)
    return variants


def main() -> None:
    """Print a line of JSON for each size and form, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["1024", "4096", "512+4096"])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--max-dense-gib", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        print("skipped the kernels, which need a GPU")
    rows = []
    for size in args.sizes:
        n, _, queue_size = size.partition("+")
        variants = build_variants(int(n), int(queue_size or 0), args.dim, args.max_dense_gib, device)
        times = time_in_rounds(variants, device, args.rounds)
        for form, seconds in times.items():
            ms, memory = round(1e3 * statistics.median(seconds), 2), extra_memory(variants[form], device)
            print(json.dumps({"size": size, "form": form, "ms": ms, "extra MiB": memory}), flush=True)
            rows.append([size, form, ms, "-" if memory is None else memory])
    print(format_table(["N+K", "form", "ms", "extra MiB"], rows))


if __name__ == "__main__":
    main()
