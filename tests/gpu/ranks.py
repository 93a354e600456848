"""What the processes of the distributed GPU tests compute, and the same for a single process."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import imix
from imix.mix import Mix
from imix.runtime.distributed import _GatherRows
from imix.runtime.sync_bn import convert_sync_bn
from tests.runtime.two_ranks import LABELS, METHODS, PresetMix, build_learner, noise, rows_of, views

DEVICE = os.environ.get("IMIX_GPU_TESTS_DEVICE", "cuda")
CASES = [(method, norm, mixed) for method in METHODS for norm in ("no norm", "sync norm") for mixed in (False, True)]


class PresetMixOnDevice(PresetMix):
    """The same on the device of the batch."""

    def __call__(self, batch: Tensor) -> tuple[Tensor, Mix]:
        mixed, (partner, lam) = super().__call__(batch.cpu())
        return mixed.to(batch.device), Mix(partner.to(batch.device), lam.to(batch.device))


def run_two_ranks(rank: int, folder: str) -> None:
    """Run one of two ranks that share the device, and save its results."""
    join("gloo", rank, 2, folder)
    results = {"train": {case: train(*case, rank, ddp=True) for case in CASES}, "pretrain": pretrain()}
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def run_one_rank(rank: int, folder: str) -> None:
    """Run a process group with a single rank; on a GPU, its collectives are NCCL's."""
    join("nccl" if DEVICE == "cuda" else "gloo", rank, 1, folder)
    x = noise(4, 3, seed=1).to(DEVICE).requires_grad_()
    gathered = _GatherRows.apply(x)  # `gather_rows` returns its input if there is one rank
    gathered.square().sum().backward()
    results = {
        "train": {case: train(*case, None, ddp=True) for case in CASES},
        "rows": x.detach().cpu(),
        "gathered": gathered.detach().cpu(),
        "gradient": x.grad.cpu(),
        "pretrain": pretrain(),
    }
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def join(backend: str, rank: int, world_size: int, folder: str) -> None:
    torch.set_num_threads(1)
    if DEVICE == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(
        backend,
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=120),
    )


def train(method: str, norm: str, mixed: bool, rank: int | None, *, ddp: bool) -> dict:
    """Train for two steps; returns losses, gradients and the final parameters."""
    n_mixed_views = 2 if method in ("simclr", "supclr") else 1
    learner = build_learner(method, norm, PresetMixOnDevice(n_mixed_views, rank) if mixed else None)
    if ddp and norm == "sync norm":
        convert_sync_bn(learner, torch.device(DEVICE))
    learner.to(DEVICE).double()
    model = DistributedDataParallel(learner, broadcast_buffers=False) if ddp else learner
    parameters = {name: p for name, p in learner.named_parameters() if p.requires_grad}
    optimizer = torch.optim.SGD(parameters.values(), lr=0.1, momentum=0.9)
    result: dict = {"losses": [], "gradients": []}
    for step in range(2):
        inputs = [view[rows_of(rank)].to(DEVICE) for view in views(step)[: learner.n_views]]
        labels = [LABELS[rows_of(rank)].to(DEVICE)] if learner.supervised else []
        loss = model(*inputs, *labels)
        optimizer.zero_grad()
        loss.backward()
        result["losses"].append(loss.detach().double().cpu())
        result["gradients"].append({name: p.grad.cpu() for name, p in parameters.items()})
        optimizer.step()
        learner.update()
    result["parameters"] = {name: p.detach().cpu() for name, p in parameters.items()}
    return result


def pretrain() -> dict:
    """A short run with `imix.pretrain`: losses and weights of the encoder."""
    run = imix.pretrain(
        gaussian_rows(), method="npair", encoder="mlp:32-32-64", batch_size=32, epochs=20, device=DEVICE,
        precision="fp32", compile=False, progress=False,
    )  # fmt: skip
    return {"losses": [record["loss"] for record in run.metrics], "weights": run.encoder.state_dict()}


def gaussian_rows() -> Tensor:
    return torch.randn(128, 12, generator=torch.Generator().manual_seed(0))
