"""Two ranks are one: the same loss, gradients and state as a single process for the same global batch (gloo, CPU).

One fixture starts two processes that run everything and leave their results in files; the tests compare them with
what this process, alone, makes of the whole batch.
"""

import os
from datetime import timedelta
from functools import cache

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from imix import distributed, losses
from imix import ranks as joining
from imix.distributed import SyncBatchNorm
from imix.errors import InputError
from imix.methods import BYOL, Method, MoCo, NPair, SimCLR, SupCLR, Supervised, SupNPair
from imix.mix import Mix

WORLD, N, COLUMNS, DIM, PLACES, CLASSES = 2, 8, 10, 6, 20, 3
SHARE = N // WORLD
METHODS = ("npair", "simclr", "moco", "byol", "symmetric moco", "symmetric byol", "supclr", "supnpair", "supervised")
CASES = [(method, norm, mixed) for method in METHODS for norm in ("unnormed", "synced") for mixed in (False, True)]
LABELS = torch.tensor([0, 1, 0, 2, 1, 0, 2, 2])
IN_BATCH = {"npair": NPair, "simclr": SimCLR, "supclr": SupCLR, "supnpair": SupNPair}
NORMS = {
    "table": ((N, 3), nn.BatchNorm1d, {}),
    "sequence": ((N, 3, 5), nn.BatchNorm1d, {"momentum": None}),
    "image": ((N, 3, 4, 2), nn.BatchNorm2d, {"eps": 1e-3, "momentum": 0.3}),
    "plain": ((N, 3), nn.BatchNorm1d, {"affine": False}),
    "stateless": ((N, 3), nn.BatchNorm1d, {"track_running_stats": False}),
}


def own(rank: int | None) -> slice:
    """The rows of the global batch that a rank has; all of them for this process alone (None)."""
    return slice(None) if rank is None else slice(rank * SHARE, (rank + 1) * SHARE)


def noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def views(step: int = 0) -> tuple[Tensor, Tensor]:
    first = noise(N, COLUMNS, seed=10 + step)
    return first, first + 0.5 * noise(N, COLUMNS, seed=20 + step)


class PresetMix:
    """MixUp with partners and lams laid down for the global batch, every partner being of the anchor's own rank.

    Where both views are mixed, a rank has [its view 1, its view 2] and a single process [all of view 1, all of view 2].
    """

    def __init__(self, views: int, rank: int | None) -> None:
        samples = torch.arange(views * N).view(views, N)  # a row's number: its place in the single process' batch
        self.rows = samples[:, own(rank)].flatten()
        self.partner = torch.empty(views * N, dtype=torch.long)
        for each in range(WORLD):
            block = samples[:, own(each)].flatten()
            order = torch.randperm(len(block), generator=torch.Generator().manual_seed(each))
            self.partner[block] = block[order]
        self.lam = noise(views * N, seed=5).sigmoid()

    def __call__(self, batch: Tensor) -> tuple[Tensor, Mix]:
        lam = self.lam[self.rows]
        partner = (self.rows[None] == self.partner[self.rows][:, None]).long().argmax(1)
        return lam[:, None] * batch + (1 - lam)[:, None] * batch[partner], Mix(partner, lam)


def make(method: str, norm: str, mix=None) -> Method:
    torch.manual_seed(0)
    normed = norm != "unnormed"
    encoder = nn.Sequential(
        nn.Linear(COLUMNS, 12), *[nn.BatchNorm1d(12)] * normed, nn.Tanh(), nn.Linear(12, 12, bias=not normed)
    )
    head = None if normed else "mlp"
    options = {"dim": DIM, "momentum": 0.9, "head": head, "symmetric": method.startswith("symmetric")}
    if method == "supervised":
        return Supervised(encoder, mix, classes=CLASSES)
    if method.endswith("moco"):
        return MoCo(encoder, mix, queue=PLACES, **options)
    if method.endswith("byol"):
        return BYOL(encoder, mix, predictor=head, **options)
    return IN_BATCH[method](encoder, mix, dim=DIM, head=head)


def train(method: str, norm: str, mixed: bool, rank: int | None) -> dict:
    """Two steps on the whole batch (rank None) or on a rank's share of it: losses, gradients and what is left."""
    both = method in ("simclr", "supclr")
    learner = make(method, norm, PresetMix(2 if both else 1, rank) if mixed else None)
    if rank is not None and norm == "synced":
        SyncBatchNorm.convert(learner)
    learner.double()
    model = learner if rank is None else DistributedDataParallel(learner, broadcast_buffers=False)
    trained = {name: p for name, p in learner.named_parameters() if p.requires_grad}
    optimizer = torch.optim.SGD(trained.values(), lr=0.1, momentum=0.9)
    result: dict = {"losses": [], "gradients": []}
    for step in range(2):
        given = [view[own(rank)] for view in views(step)[: learner.views]]
        loss = model(*given, LABELS[own(rank)]) if learner.supervised else model(*given)
        optimizer.zero_grad()
        loss.backward()
        result["losses"].append(loss.detach().double())
        result["gradients"].append({name: p.grad.clone() for name, p in trained.items()})
        optimizer.step()
        learner.update()
    result["state"] = {name: value.clone() for name, value in learner.state_dict().items()}
    return result


def normalise(kind: str, rank: int | None) -> dict:
    """Two training steps and one evaluation of a batch normalisation, the whole batch or a rank's share."""
    shape, layer, options = NORMS[kind]
    norm = layer(3, **options)
    if norm.affine:
        norm.weight.data, norm.bias.data = noise(3, seed=1).float(), noise(3, seed=2).float()
    if rank is not None:
        norm = SyncBatchNorm.convert(norm)
    norm.double()
    result: dict = {}
    for step in range(2):
        x = (2 * noise(*shape, seed=30 + step) + 1)[own(rank)].requires_grad_()
        y = norm(x)
        (y * noise(*shape, seed=40)[own(rank)]).sum().backward()
        result |= {f"output {step}": y.detach(), f"gradient {step}": x.grad}
    result["parameters"] = [p.grad for p in norm.parameters()]
    result["buffers"] = dict(norm.named_buffers())
    if norm.track_running_stats:
        result["evaluated"] = norm.eval()(noise(*shape, seed=50)[own(rank)]).detach()
    return result


def collectives(rank: int) -> dict:
    result: dict = {"world": distributed.world_size(), "rank": distributed.rank(), "offset": distributed.own_offset(5)}
    x = noise(N, 3, seed=60)[own(rank)].requires_grad_()
    gathered = distributed.all_ranks(x)
    (gathered * noise(N, 3, seed=70 + rank)).sum().backward()
    result |= {"gathered": gathered.detach(), "gathered gradient": x.grad}
    result["mean"] = distributed.mean_over_ranks(noise(4, 3, seed=80 + rank).requires_grad_())
    result["transposed"] = distributed.all_ranks(noise(3, N, seed=60).T[own(rank)])
    result["integers"] = distributed.all_ranks(LABELS[own(rank)])
    result["any"] = list(distributed.Rounds().ask(1, rank == 0, rank == 1, False, True))
    torch.manual_seed(rank)
    result["order"], result["back"] = distributed.shuffled(SHARE, torch.device("cpu"))
    result["shuffled rows"] = distributed.rows_of_this_rank(torch.arange(N), result["order"])
    result["joined again"] = joining.start()
    return result


def identity_learner(method: str) -> Method:
    """A learner that embeds a sample as itself."""
    encoder, options = nn.Identity(), {"width": N, "dim": N, "head": "linear", "temperature": 0.02}
    learner = MoCo(encoder, queue=3, **options) if method == "moco" else IN_BATCH[method](encoder, **options)
    for name in ("head", "key_head"):
        if hasattr(learner, name):
            nn.init.eye_(getattr(learner, name)[0].weight)
            nn.init.zeros_(getattr(learner, name)[0].bias)
    if method == "moco":
        learner.queue.zero_()
    return learner.double()


def orthogonal_losses(rank: int) -> dict:
    """The losses of samples that are orthogonal to each other and equal in both views."""
    x, labels = torch.eye(N).double()[own(rank)], torch.arange(N)[own(rank)]
    found = {}
    for method in ("npair", "simclr", "moco", "supclr", "supnpair"):
        learner = identity_learner(method)
        found[method] = (learner(x, x, labels) if learner.supervised else learner(x, x)).detach()
    return found


def loss_of_rank_0_only(rank: int) -> dict:
    view_1, view_2 = (view[own(rank)].clone().requires_grad_() for view in views())
    loss = make("npair", "unnormed").double()(view_1, view_2)
    (loss * (rank == 0)).backward()
    return {"anchors": view_1.grad, "keys": view_2.grad}


def key_norms(learner: Method) -> list[nn.Module]:
    return [part for part in learner.key_encoder.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]


def shuffle(rank: int) -> dict:
    """Keys of momentum networks whose batch normalisation is not synced, and the rows that network was given."""
    result: dict = {}
    for method in ("moco", "byol"):
        for frozen in (True, False):
            learner = make(method, "normed").double()
            for norm in key_norms(learner) + [part for part in learner.key_head if isinstance(part, nn.BatchNorm1d)]:
                norm.train(not frozen)  # frozen, a key follows from its own sample alone
            seen: list[Tensor] = []
            learner.key_encoder.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(given[0].clone()))
            torch.manual_seed(rank)
            (keys,) = learner.keys(views()[1][own(rank)])
            result[method, frozen] = {"keys": keys, "seen": seen[0]}
    learner = make("moco", "normed").double()
    seen = []
    learner.key_encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0].clone()))
    learner.eval().keys(views()[1][own(rank)])
    SyncBatchNorm.convert(learner.float()).double().train().keys(views()[1][own(rank)])
    result["seen in evaluation"], result["seen when synced"] = seen

    a, b = (view[own(rank)] for view in views())
    result["keys of fields"] = pair_learner().keys({"a": a, "b": b})[0]

    learner = make("moco", "normed").double()
    learner(a, b)
    result["waiting"] = learner.waiting[0]
    learner.update()
    result["queue"], result["cursor"] = learner.queue.clone(), learner.cursor.clone()
    return result


class PairEncoder(nn.Module):
    """An encoder of samples with two fields that are of no use unless they stay together."""

    width = COLUMNS

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(COLUMNS)
        self.weight = nn.Parameter(torch.ones(COLUMNS))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.norm(batch["a"] * batch["b"]) * self.weight


def pair_learner() -> MoCo:
    torch.manual_seed(0)
    learner = MoCo(PairEncoder(), queue=4, dim=DIM, head="linear").double()
    learner.key_encoder.norm.eval()
    return learner


def work(rank: int, folder: str) -> None:
    """What each of the two processes does."""
    torch.set_num_threads(1)
    os.environ["WORLD_SIZE"] = str(WORLD)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=60),
    )
    results = {
        "train": {case: train(*case, rank) for case in CASES},
        "norms": {kind: normalise(kind, rank) for kind in NORMS},
        "collectives": collectives(rank),
        "orthogonal": orthogonal_losses(rank),
        "rank 0 only": loss_of_rank_0_only(rank),
        "shuffle": shuffle(rank),
    }
    torch.save(results, f"{folder}/{rank}.pt")
    joining.stop()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    """The results of both ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(work, (str(folder),), nprocs=WORLD)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]


@cache
def alone(method: str, norm: str, mixed: bool) -> dict:
    return train(method, norm, mixed, None)


def assert_same(actual, expected, method: str = "") -> None:
    """Equal up to the order of float64 sums; `Supervised` makes its cross-entropy in float32."""
    assert_close(actual, expected, rtol=1e-10, atol=1e-10)


# Methods.


@pytest.mark.parametrize(("method", "norm", "mixed"), CASES)
def test_loss_is_that_of_one_process(ranks, method, norm, mixed):
    for step in range(2):
        found = torch.stack([each["train"][method, norm, mixed]["losses"][step] for each in ranks]).mean()
        assert_same(found, alone(method, norm, mixed)["losses"][step], method)


@pytest.mark.parametrize(("method", "norm", "mixed"), CASES)
def test_gradients_are_those_of_one_process(ranks, method, norm, mixed):
    for step in range(2):
        expected = alone(method, norm, mixed)["gradients"][step]
        assert all(gradient.any() for name, gradient in expected.items() if gradient.dim() == 2)
        for each in ranks:
            assert_same(each["train"][method, norm, mixed]["gradients"][step], expected, method)


@pytest.mark.parametrize(("method", "norm", "mixed"), CASES)
def test_two_steps_leave_the_state_of_one_process(ranks, method, norm, mixed):
    """Parameters, the key network, batch statistics and the queue's cursor."""
    expected = alone(method, norm, mixed)["state"]
    for each in ranks:
        found = each["train"][method, norm, mixed]["state"]
        assert found.keys() == expected.keys()
        for name in expected.keys() - {"queue"}:
            assert_same(found[name], expected[name], method)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("norm", ["unnormed", "synced"])
def test_queue_is_fed_from_every_rank(ranks, norm, mixed):
    def as_a_set(queue: Tensor) -> Tensor:
        return queue[queue[:, 0].argsort()]

    expected = alone("moco", norm, mixed)["state"]["queue"]
    fresh = make("moco", norm).double().queue
    assert (fresh != expected).any(1).sum() == 2 * N
    for each in ranks:
        assert_same(as_a_set(each["train"]["moco", norm, mixed]["state"]["queue"]), as_a_set(expected))


@pytest.mark.parametrize(("method", "norm", "mixed"), CASES)
def test_ranks_stay_equal(ranks, method, norm, mixed):
    first, second = (each["train"][method, norm, mixed] for each in ranks)
    assert_close(first["state"], second["state"], rtol=0, atol=0)
    assert_close(first["gradients"], second["gradients"], rtol=0, atol=0)
    assert first["losses"] != second["losses"], "each rank has anchors of its own"


@pytest.mark.parametrize("method", ["npair", "simclr", "moco", "supclr", "supnpair"])
def test_labels_are_offset_by_rank(ranks, method):
    """Each sample's positive is itself and all else is orthogonal: a label of another row would cost 1 / tau = 50."""
    for each in ranks:
        assert 0 <= each["orthogonal"][method] < 1e-15


def test_keys_of_other_ranks_carry_gradient(ranks):
    view_1, view_2 = (view.clone().requires_grad_() for view in views())
    learner = make("npair", "unnormed").double()
    q, k = learner.project(view_1[own(0)], view_2)
    losses.npair(q, k, temperature=learner.temperature).backward()
    for rank, each in enumerate(ranks):
        assert view_2.grad[own(rank)].any(1).all()
        assert_same(each["rank 0 only"]["keys"], view_2.grad[own(rank)])
        assert_same(each["rank 0 only"]["anchors"], view_1.grad[own(rank)])


def test_partners_of_the_preset_mix_are_the_same_samples_on_ranks_and_alone():
    """What makes the comparison fair."""
    for count in (1, 2):
        names = torch.arange(count * N, dtype=torch.float64)[:, None]
        whole, mix = PresetMix(count, None)(names)
        assert not mix.partner.equal(torch.arange(count * N))
        for rank in range(WORLD):
            rows = torch.arange(count * N).view(count, N)[:, own(rank)].flatten()
            mixed, of_rank = PresetMix(count, rank)(names[rows])
            assert_close(mixed, whole[rows], rtol=0, atol=0)
            assert rows[of_rank.partner].equal(mix.partner[rows])


# Collectives.


def test_gathered_rows_stand_in_rank_order(ranks):
    for rank, each in enumerate(ranks):
        found = each["collectives"]
        assert (found["world"], found["rank"], found["offset"]) == (WORLD, rank, 5 * rank)
        assert found["gathered"].equal(noise(N, 3, seed=60))
        assert found["transposed"].equal(noise(3, N, seed=60).T)
        assert found["integers"].equal(LABELS)


def test_gradient_of_gathered_rows_sums_over_ranks(ranks):
    """No 1 / W is lost, and no rank's share is forgotten."""
    expected = noise(N, 3, seed=70) + noise(N, 3, seed=71)
    for rank, each in enumerate(ranks):
        assert_same(each["collectives"]["gathered gradient"], expected[own(rank)])


def test_mean_over_ranks_carries_no_gradient(ranks):
    for each in ranks:
        assert_same(each["collectives"]["mean"], (noise(4, 3, seed=80) + noise(4, 3, seed=81)) / 2)
        assert not each["collectives"]["mean"].requires_grad


def test_every_rank_is_heard(ranks):
    for each in ranks:
        assert each["collectives"]["any"] == [True, True, False, True]


def test_ranks_agree_on_a_shuffle(ranks):
    first, second = (each["collectives"] for each in ranks)
    assert first["order"].equal(second["order"])
    assert first["order"].sort().values.equal(torch.arange(N))
    assert first["order"][first["back"]].equal(torch.arange(N))
    assert torch.cat([first["shuffled rows"], second["shuffled rows"]]).equal(first["order"])


def test_ranks_are_joined_once(ranks):
    assert not any(each["collectives"]["joined again"] for each in ranks)


def test_a_batch_normalisation_that_is_more_than_that_is_not_synced_in_silence():
    class Activated(nn.BatchNorm1d):
        def forward(self, x):
            return super().forward(x).relu()

    with pytest.raises(InputError, match=r"Activated is more than a batch normalisation.*--no-sync-bn"):
        distributed.SyncBatchNorm.convert(nn.Sequential(nn.Linear(3, 4), Activated(4)))


def test_one_process_needs_no_collectives(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    x = torch.randn(3, 2, requires_grad=True)
    assert not joining.start()
    assert (distributed.world_size(), distributed.rank(), distributed.own_offset(7)) == (1, 0, 0)
    assert distributed.all_ranks(x) is x
    assert_close(distributed.mean_over_ranks(x), x.detach(), rtol=0, atol=0)
    assert distributed.Rounds().ask(1, True, False) == (True, False)
    module = nn.Linear(2, 2)
    assert distributed.joined(module) is module


# Batch normalisation over ranks.


@pytest.mark.parametrize("kind", NORMS)
def test_synced_batch_norm_is_batch_norm_of_the_whole_batch(ranks, kind):
    expected = normalise(kind, None)
    for name in expected.keys() - {"parameters", "buffers"}:
        found = torch.cat([each["norms"][kind][name] for each in ranks])
        assert_same(found, expected[name])
    for each in ranks:
        assert_same(each["norms"][kind]["buffers"], expected["buffers"])
    summed = [sum(parts) for parts in zip(*[each["norms"][kind]["parameters"] for each in ranks], strict=True)]
    assert_same(summed, expected["parameters"])


def test_convert_keeps_parameters_buffers_and_modes():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(4, 3), nn.BatchNorm1d(3, eps=0.1, momentum=0.4), nn.Sequential(nn.BatchNorm1d(3, affine=False))
    )
    module(torch.randn(6, 4))
    module[1].weight.requires_grad_(False)
    module[2].eval()
    parameters, buffers = dict(module.named_parameters()), {k: v.clone() for k, v in module.named_buffers()}
    converted = SyncBatchNorm.convert(module)
    assert converted is module
    assert isinstance(module[1], SyncBatchNorm)
    assert isinstance(module[2][0], SyncBatchNorm)
    assert (module[1].eps, module[1].momentum, module[2][0].affine) == (0.1, 0.4, False)
    found = dict(module.named_parameters())
    assert found.keys() == parameters.keys()
    assert all(found[name] is parameter for name, parameter in parameters.items())
    assert_close(dict(module.named_buffers()), buffers, rtol=0, atol=0)
    assert [part.training for part in module] == [True, True, False]
    assert not module[2][0].training


def test_converting_twice_changes_nothing():
    once = SyncBatchNorm.convert(nn.Sequential(nn.BatchNorm1d(3)))
    norm = once[0]
    assert SyncBatchNorm.convert(once)[0] is norm


def test_synced_batch_norm_alone_is_batch_norm():
    x = torch.randn(6, 3, 4)
    plain, synced = nn.BatchNorm1d(3), SyncBatchNorm.convert(nn.BatchNorm1d(3))
    assert_close(synced(x), plain(x), rtol=0, atol=0)
    assert_close(dict(synced.state_dict()), dict(plain.state_dict()), rtol=0, atol=0)


# Shuffled batch normalisation.


def unshuffled_keys(method: str, rows: Tensor, frozen: bool) -> Tensor:
    learner = make(method, "normed").double()
    learner.key_encoder.train(not frozen)
    learner.key_head.train(not frozen)
    with torch.no_grad():
        return learner.key_head(learner.key_encoder(rows))


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_shuffled_keys_come_back_in_order(ranks, method):
    expected = unshuffled_keys(method, views()[1], frozen=True)
    for rank, each in enumerate(ranks):
        assert_same(each["shuffle"][method, True]["keys"], expected[own(rank)])


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_keys_are_normalised_with_rows_of_other_ranks(ranks, method):
    view = views()[1]
    seen = [each["shuffle"][method, False]["seen"] for each in ranks]
    places = (torch.cat(seen)[:, None] == view).all(2).long().argmax(1)
    assert places.sort().values.equal(torch.arange(N)), "every row goes through the key network once"
    assert (places[:SHARE] >= SHARE).any()
    expected = torch.cat([unshuffled_keys(method, rows, frozen=False) for rows in seen])[places.argsort()]
    for rank, each in enumerate(ranks):
        assert_same(each["shuffle"][method, False]["keys"], expected[own(rank)])


@pytest.mark.parametrize("when", ["seen in evaluation", "seen when synced"])
def test_rows_are_not_shuffled_where_it_serves_nothing(ranks, when):
    for rank, each in enumerate(ranks):
        assert each["shuffle"][when].equal(views()[1][own(rank)])


def test_fields_of_a_sample_are_shuffled_together(ranks):
    learner, (a, b) = pair_learner(), views()
    with torch.no_grad():
        expected = learner.key_head(learner.key_encoder({"a": a, "b": b}))
    for rank, each in enumerate(ranks):
        assert_same(each["shuffle"]["keys of fields"], expected[own(rank)])


def test_queue_is_fed_from_every_rank_with_shuffled_batch_norm(ranks):
    first, second = (each["shuffle"] for each in ranks)
    assert first["queue"].equal(second["queue"])
    assert first["waiting"].shape == (N, DIM)
    assert_same(first["queue"][:N], nn.functional.normalize(first["waiting"]))
    assert first["cursor"] == second["cursor"] == N


def test_converting_to_synced_bn_keeps_dtype_parameters_buffers_and_sharing():
    shared = nn.BatchNorm1d(3)
    module = nn.ModuleList([shared, nn.Sequential(shared)]).double()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    SyncBatchNorm.convert(module)
    assert module[0] is module[1][0]
    assert isinstance(module[0], SyncBatchNorm)
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    x = torch.randn(5, 3).double()
    torch.testing.assert_close(module[0](x), nn.BatchNorm1d(3).double()(x))
