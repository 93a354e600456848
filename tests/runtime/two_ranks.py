"""What the two processes of the distributed tests compute, and the same for a single process.

Functions take a rank, or None for a single process that has the global batch.
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from imix.methods import BYOL, Method, MoCo, NPair, SimCLR, SupCLR, Supervised, SupNPair
from imix.mix import Mix
from imix.runtime import distributed, launch
from imix.runtime.sync_bn import convert_sync_bn

WORLD_SIZE, N, COLUMNS, DIM, QUEUE, CLASSES = 2, 8, 10, 6, 20, 3
ROWS_PER_RANK = N // WORLD_SIZE
METHODS = ("npair", "simclr", "moco", "byol", "symmetric moco", "symmetric byol", "supclr", "supnpair", "supervised")
CASES = [(method, norm, mixed) for method in METHODS for norm in ("no norm", "sync norm") for mixed in (False, True)]
CPU = torch.device("cpu")
LABELS = torch.tensor([0, 1, 0, 2, 1, 0, 2, 2])
IN_BATCH_METHODS = {"npair": NPair, "simclr": SimCLR, "supclr": SupCLR, "supnpair": SupNPair}
NORMS = {
    "table": ((N, 3), nn.BatchNorm1d, {}),
    "sequence": ((N, 3, 5), nn.BatchNorm1d, {"momentum": None}),
    "image": ((N, 3, 4, 2), nn.BatchNorm2d, {"eps": 1e-3, "momentum": 0.3}),
    "not affine": ((N, 3), nn.BatchNorm1d, {"affine": False}),
    "no running statistics": ((N, 3), nn.BatchNorm1d, {"track_running_stats": False}),
}


def run_rank(rank: int, folder: str) -> None:
    """Run everything on one rank and save the results."""
    torch.set_num_threads(1)
    os.environ["WORLD_SIZE"] = str(WORLD_SIZE)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=WORLD_SIZE,
        timeout=timedelta(seconds=60),
    )
    results = {
        "train": {case: train(*case, rank) for case in CASES},
        "norms": {kind: normalize(kind, rank) for kind in NORMS},
        "collectives": collectives(rank),
        "orthogonal": orthogonal_losses(rank),
        "rank 0 only": loss_of_rank_0_only(rank),
        "shuffle": shuffle(rank),
    }
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def assert_same(actual, expected) -> None:
    """Equal up to the order of float64 sums."""
    assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def rows_of(rank: int | None) -> slice:
    """The rows of the global batch that a rank has."""
    return slice(None) if rank is None else slice(rank * ROWS_PER_RANK, (rank + 1) * ROWS_PER_RANK)


def noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def views(step: int = 0) -> tuple[Tensor, Tensor]:
    first = noise(N, COLUMNS, seed=10 + step)
    return first, first + 0.5 * noise(N, COLUMNS, seed=20 + step)


class PresetMix:
    """MixUp with fixed partners and lams for the global batch; each partner is on the same rank as its anchor.

    If both views are mixed, a rank has [its view 1, its view 2], and a single process has [all view 1, all view 2].
    """

    def __init__(self, n_views: int, rank: int | None) -> None:
        index = torch.arange(n_views * N).view(n_views, N)  # row index in the batch of the single process
        self.rows = index[:, rows_of(rank)].flatten()
        self.partner = torch.empty(n_views * N, dtype=torch.long)
        for r in range(WORLD_SIZE):
            block = index[:, rows_of(r)].flatten()
            order = torch.randperm(len(block), generator=torch.Generator().manual_seed(r))
            self.partner[block] = block[order]
        self.lam = noise(n_views * N, seed=5).sigmoid()

    def __call__(self, batch: Tensor) -> tuple[Tensor, Mix]:
        lam = self.lam[self.rows]
        partner = (self.rows[None] == self.partner[self.rows][:, None]).long().argmax(1)
        return lam[:, None] * batch + (1 - lam)[:, None] * batch[partner], Mix(partner, lam)


def build_learner(method: str, norm: str, mix=None) -> Method:
    torch.manual_seed(0)
    has_norm = norm != "no norm"
    encoder = nn.Sequential(
        nn.Linear(COLUMNS, 12), *[nn.BatchNorm1d(12)] * has_norm, nn.Tanh(), nn.Linear(12, 12, bias=not has_norm)
    )
    head = None if has_norm else "mlp"
    options = {"dim": DIM, "momentum": 0.9, "head": head, "symmetric": method.startswith("symmetric")}
    if method == "supervised":
        return Supervised(encoder, mix, n_classes=CLASSES)
    if method.endswith("moco"):
        return MoCo(encoder, mix, queue=QUEUE, **options)
    if method.endswith("byol"):
        return BYOL(encoder, mix, predictor=head, **options)
    return IN_BATCH_METHODS[method](encoder, mix, dim=DIM, head=head)


def train(method: str, norm: str, mixed: bool, rank: int | None) -> dict:
    """Train for two steps; returns losses, gradients and the final state."""
    n_mixed_views = 2 if method in ("simclr", "supclr") else 1
    learner = build_learner(method, norm, PresetMix(n_mixed_views, rank) if mixed else None)
    if rank is not None and norm == "sync norm":
        convert_sync_bn(learner, CPU)
    learner.double()
    model = learner if rank is None else DistributedDataParallel(learner, broadcast_buffers=False)
    parameters = {name: p for name, p in learner.named_parameters() if p.requires_grad}
    optimizer = torch.optim.SGD(parameters.values(), lr=0.1, momentum=0.9)
    result: dict = {"losses": [], "gradients": []}
    for step in range(2):
        inputs = [view[rows_of(rank)] for view in views(step)[: learner.n_views]]
        loss = model(*inputs, LABELS[rows_of(rank)]) if learner.supervised else model(*inputs)
        optimizer.zero_grad()
        loss.backward()
        result["losses"].append(loss.detach().double())
        result["gradients"].append({name: p.grad.clone() for name, p in parameters.items()})
        optimizer.step()
        learner.update()
    result["state"] = {name: value.clone() for name, value in learner.state_dict().items()}
    return result


def normalize(kind: str, rank: int | None) -> dict:
    """Two training steps and one evaluation of a batch normalization layer."""
    shape, layer, options = NORMS[kind]
    norm = layer(3, **options)
    if norm.affine:
        norm.weight.data, norm.bias.data = noise(3, seed=1).float(), noise(3, seed=2).float()
    if rank is not None:
        norm = convert_sync_bn(norm, CPU)
    norm.double()
    result: dict = {}
    for step in range(2):
        x = (2 * noise(*shape, seed=30 + step) + 1)[rows_of(rank)].requires_grad_()
        y = norm(x)
        (y * noise(*shape, seed=40)[rows_of(rank)]).sum().backward()
        result |= {f"output {step}": y.detach(), f"gradient {step}": x.grad}
    result["parameters"] = [p.grad for p in norm.parameters()]
    result["buffers"] = dict(norm.named_buffers())
    if norm.track_running_stats:
        result["evaluated"] = norm.eval()(noise(*shape, seed=50)[rows_of(rank)]).detach()
    return result


def collectives(rank: int) -> dict:
    result: dict = {
        "world size": distributed.world_size(),
        "rank": distributed.rank(),
        "offset": distributed.row_offset(5),
    }
    x = noise(N, 3, seed=60)[rows_of(rank)].requires_grad_()
    gathered = distributed.gather_rows(x)
    (gathered * noise(N, 3, seed=70 + rank)).sum().backward()
    result |= {"gathered": gathered.detach(), "gathered gradient": x.grad}
    result["mean"] = distributed.mean_over_ranks(noise(4, 3, seed=80 + rank).requires_grad_())
    result["transposed"] = distributed.gather_rows(noise(3, N, seed=60).T[rows_of(rank)])
    result["integers"] = distributed.gather_rows(LABELS[rows_of(rank)])
    result["any"] = list(distributed.RankPoll().any(1, rank == 0, rank == 1, False, True))
    torch.manual_seed(rank)
    result["order"], result["inverse"] = distributed.shared_permutation(ROWS_PER_RANK, torch.device("cpu"))
    result["shuffled rows"] = distributed.local_rows(torch.arange(N), result["order"])
    with launch.join_ranks() as result["joined again"]:
        pass
    return result


def identity_learner(method: str) -> Method:
    """A learner whose embedding of a sample is the sample."""
    encoder, options = nn.Identity(), {"width": N, "dim": N, "head": "linear", "temperature": 0.02}
    learner = MoCo(encoder, queue=3, **options) if method == "moco" else IN_BATCH_METHODS[method](encoder, **options)
    for name in ("head", "key_head"):
        if hasattr(learner, name):
            nn.init.eye_(getattr(learner, name)[0].weight)
            nn.init.zeros_(getattr(learner, name)[0].bias)
    if method == "moco":
        learner.queue.zero_()
    return learner.double()


def orthogonal_losses(rank: int) -> dict:
    """Losses of orthogonal samples with two equal views."""
    x, labels = torch.eye(N).double()[rows_of(rank)], torch.arange(N)[rows_of(rank)]
    losses = {}
    for method in ("npair", "simclr", "moco", "supclr", "supnpair"):
        learner = identity_learner(method)
        losses[method] = (learner(x, x, labels) if learner.supervised else learner(x, x)).detach()
    return losses


def loss_of_rank_0_only(rank: int) -> dict:
    view_1, view_2 = (view[rows_of(rank)].clone().requires_grad_() for view in views())
    loss = build_learner("npair", "no norm").double()(view_1, view_2)
    (loss * (rank == 0)).backward()
    return {"anchors": view_1.grad, "keys": view_2.grad}


def key_norms(learner: Method) -> list[nn.Module]:
    return [part for part in learner.key_encoder.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]


def shuffle(rank: int) -> dict:
    """Keys of momentum methods without synchronized batch normalization, and the inputs of their key network."""
    result: dict = {}
    for method in ("moco", "byol"):
        for frozen in (True, False):
            learner = build_learner(method, "norm").double()
            for norm in key_norms(learner) + [part for part in learner.key_head if isinstance(part, nn.BatchNorm1d)]:
                norm.train(not frozen)  # if frozen, a key depends on its own sample only
            inputs: list[Tensor] = []
            learner.key_encoder.register_forward_pre_hook(lambda _, args, inputs=inputs: inputs.append(args[0].clone()))
            torch.manual_seed(rank)
            (keys,) = learner.keys(views()[1][rows_of(rank)])
            result[method, frozen] = {"keys": keys, "inputs": inputs[0]}
    learner = build_learner("moco", "norm").double()
    inputs = []
    learner.key_encoder.register_forward_pre_hook(lambda _, args: inputs.append(args[0].clone()))
    learner.eval().keys(views()[1][rows_of(rank)])
    convert_sync_bn(learner.float(), CPU).double().train().keys(views()[1][rows_of(rank)])
    result["inputs in evaluation"], result["inputs with sync norm"] = inputs

    a, b = (view[rows_of(rank)] for view in views())
    result["keys of fields"] = two_field_learner().keys({"a": a, "b": b})[0]

    learner = build_learner("moco", "norm").double()
    learner(a, b)
    result["waiting"] = learner.pending_keys[0]
    learner.update()
    result["queue"], result["cursor"] = learner.queue.clone(), learner.cursor.clone()
    return result


class TwoFieldEncoder(nn.Module):
    """An encoder of samples with two fields, whose output is wrong if fields of different samples are combined."""

    width = COLUMNS

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(COLUMNS)
        self.weight = nn.Parameter(torch.ones(COLUMNS))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.norm(batch["a"] * batch["b"]) * self.weight


def two_field_learner() -> MoCo:
    torch.manual_seed(0)
    learner = MoCo(TwoFieldEncoder(), queue=4, dim=DIM, head="linear").double()
    learner.key_encoder.norm.eval()
    return learner
