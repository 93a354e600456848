"""The methods: each against its equation written as loops, its state, and how it treats the encoder it is given."""

import copy
import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import imix
from imix import InputError
from imix.batch import concatenate, map_fields, size
from imix.encoders import MLP, Convolutions
from imix.methods import BYOL, Method, MoCo, NPair, SimCLR, SupCLR, Supervised, SupNPair
from imix.mix import CutMix, Mix, MixUp

N, K, DIM, CLASSES, TAU = 6, 10, 8, 3, 0.2
LABELS = torch.tensor([0, 1, 0, 2, 1, 0])


class Pair(nn.Module):
    """An encoder of samples with two fields, given as a tuple or as a dict."""

    width = 12

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.norm = nn.Linear(5, 12), nn.Linear(3, 12), nn.BatchNorm1d(12)

    def forward(self, batch):
        left, right = batch.values() if isinstance(batch, dict) else batch
        return self.norm(self.left(left) + self.right(right)).relu()


ENCODERS = {
    "image": lambda: Convolutions(3, axes=2, widths=(4, 12)),
    "table": lambda: MLP(20, widths=(16, 48)),
    "sequence": lambda: Convolutions(2, axes=1, widths=(4, 12)),
    "tuple": Pair,
    "dict": Pair,
}
SAMPLES = {
    "image": lambda: torch.randn(N, 3, 8, 8),
    "table": lambda: torch.randn(N, 20),
    "sequence": lambda: torch.randn(N, 2, 16),
    "tuple": lambda: (torch.randn(N, 5), torch.randn(N, 3)),
    "dict": lambda: {"left": torch.randn(N, 5), "right": torch.randn(N, 3)},
}
OPERATORS = {"none": None, "mixup": MixUp(), "one-lam": MixUp(per_sample=False, fold=False), "cutmix": CutMix()}
METHODS = ("npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised")
CASES = [
    (kind, operator)
    for kind in ENCODERS
    for operator in OPERATORS
    if operator != "cutmix" or kind in ("image", "sequence")
]


def make(method: str, encoder: nn.Module, mix=None, head: str | None = None, **options) -> Method:
    if method == "supervised":
        return Supervised(encoder, mix, classes=CLASSES, **options)
    if method == "moco":
        return MoCo(encoder, mix, queue=K, temperature=TAU, dim=DIM, head=head, **options)
    if method == "byol":
        return BYOL(encoder, mix, dim=DIM, head=head, predictor=head, **options)
    contrastive = {"npair": NPair, "simclr": SimCLR, "supclr": SupCLR, "supnpair": SupNPair}[method]
    return contrastive(encoder, mix, temperature=TAU, dim=DIM, head=head, **options)


def table_learner(method: str, mix=None, head: str | None = None) -> Method:
    torch.manual_seed(0)
    return make(method, ENCODERS["table"](), mix, head)


def views(kind: str = "table", seed: int = 1):
    torch.manual_seed(seed)
    return SAMPLES[kind](), SAMPLES[kind]()


def loss_of(learner: Method, view_1, view_2, labels: Tensor = LABELS) -> Tensor:
    given = (view_1, view_2)[: learner.views]
    return learner(*given, labels=labels) if learner.supervised else learner(*given)


# The equations, as loops over anchors and columns, in float64.


def similarity(a: Tensor, b: Tensor) -> Tensor:
    return a @ b / (a.norm() * b.norm())


def cross_entropy(anchors: Tensor, columns: Tensor, virtual: Tensor, lacks_own: bool = False) -> Tensor:
    """-sum_n v_n log softmax(s(f, f_n) / tau)_n, mean over anchors; with `lacks_own` column i is not in the softmax."""
    total = torch.zeros(())
    for i, anchor in enumerate(anchors):
        s = torch.stack([similarity(anchor, column) / TAU for column in columns])
        normaliser = sum(s_k.exp() for k, s_k in enumerate(s) if not (lacks_own and k == i)).log()
        total = total - (virtual[i] * (s - normaliser)).sum()
    return total / len(anchors)


def mixed_label(virtual: Tensor, mix: Mix | None) -> Tensor:
    if mix is None:
        return virtual
    lam = mix.lam[:, None]
    return lam * virtual + (1 - lam) * virtual[mix.partner]


def npair_equation(q: Tensor, k: Tensor, mix: Mix | None) -> Tensor:
    return cross_entropy(q, k, mixed_label(torch.eye(N).double(), mix))


def simclr_equation(q: Tensor, k: Tensor, mix: Mix | None) -> Tensor:
    other_view = torch.eye(2 * N).double().roll(N, 1)
    return cross_entropy(q, k, mixed_label(other_view, mix), lacks_own=True)


def moco_equation(q: Tensor, k: Tensor, queue: Tensor, mix: Mix | None) -> Tensor:
    if mix is not None:
        return cross_entropy(q, torch.cat([k, queue]), mixed_label(torch.eye(N, N + K).double(), mix))
    first = torch.eye(1, 1 + K).double()
    return sum(cross_entropy(q[i : i + 1], torch.cat([k[i : i + 1], queue]), first) for i in range(N)) / N


def byol_equation(p: Tensor, k: Tensor, mix: Mix | None) -> Tensor:
    total = torch.zeros(())
    for i in range(N):
        partner, lam = (i, 1.0) if mix is None else (mix.partner[i], mix.lam[i])
        total = total + lam * (p[i] / p[i].norm() - k[i] / k[i].norm()).square().sum()
        total = total + (1 - lam) * (p[i] / p[i].norm() - k[partner] / k[partner].norm()).square().sum()
    return total / N


def supclr_equation(q: Tensor, k: Tensor, mix: Mix | None) -> Tensor:
    labels = torch.cat([LABELS, LABELS])

    def label_of(sample: int, anchor: int) -> Tensor:
        """Mean over the positives of a sample that an anchor has columns for."""
        positive = [float(labels[n] == labels[sample] and n not in (sample, anchor)) for n in range(2 * N)]
        return torch.tensor(positive).double() / max(1.0, sum(positive))

    virtual = torch.stack([label_of(i, i) for i in range(2 * N)])
    if mix is not None:
        lam = mix.lam[:, None]
        partners = torch.stack([label_of(int(mix.partner[i]), i) for i in range(2 * N)])
        virtual = lam * virtual + (1 - lam) * partners
    return cross_entropy(q, k, virtual, lacks_own=True)


def supnpair_equation(q: Tensor, k: Tensor, mix: Mix | None) -> Tensor:
    same = (LABELS[:, None] == LABELS).double()
    return cross_entropy(q, k, mixed_label(same / same.sum(1, keepdim=True), mix))


def supervised_equation(logits: Tensor, mix: Mix | None) -> Tensor:
    total = torch.zeros(())
    for i in range(N):
        log_p = logits[i] - logits[i].exp().sum().log()
        partner, lam = (i, 1.0) if mix is None else (mix.partner[i], mix.lam[i])
        total = total - lam * log_p[LABELS[i]] - (1 - lam) * log_p[LABELS[partner]]
    return total / N


def by_hand(learner: Method, view_1, view_2) -> Tensor:
    """The method's loss from its parts: mix, encode in one pass, put into the equation."""
    operator = learner.mix
    if isinstance(learner, Supervised):
        x, mix = operator(view_1)
        return supervised_equation(learner.classifier(learner.encoder(x)), mix)
    if isinstance(learner, SimCLR):
        both = concatenate([view_1, view_2])
        anchors, mix = operator(both)
        equation = supclr_equation if isinstance(learner, SupCLR) else simclr_equation
        if mix is None:
            z = learner.head(learner.encoder(both))
            return equation(z, z, None)
        z = learner.head(learner.encoder(concatenate([anchors, both])))
        return equation(z[: 2 * N], z[2 * N :], mix)
    anchors, mix = operator(view_1)
    if isinstance(learner, NPair):
        z = learner.head(learner.encoder(concatenate([anchors, view_2])))
        equation = supnpair_equation if isinstance(learner, SupNPair) else npair_equation
        return equation(z[:N], z[N:], mix)
    q, k = learner.head(learner.encoder(anchors)), learner.key_head(learner.key_encoder(view_2)).detach()
    if isinstance(learner, BYOL):
        return byol_equation(learner.predictor(q), k, mix)
    return moco_equation(q, k, learner.queue, mix)


@pytest.mark.parametrize(("kind", "operator"), CASES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_every_operator_matches_its_equation(method, kind, operator):
    """The loss and the gradient of every parameter."""
    torch.manual_seed(0)
    learner = make(method, ENCODERS[kind](), OPERATORS[operator]).double()
    twin = copy.deepcopy(learner)
    view_1, view_2 = (map_fields(Tensor.double, view) for view in views(kind))
    torch.manual_seed(7)
    loss = loss_of(learner, view_1, view_2)
    torch.manual_seed(7)
    expected = by_hand(twin, view_1, view_2)
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-11)
    for (name, parameter), other in zip(learner.named_parameters(), twin.parameters(), strict=True):
        assert_close(parameter.grad, other.grad, rtol=1e-11, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(("kind", "operator"), CASES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_every_operator_gives_a_float32_loss_that_trains_every_parameter(method, kind, operator):
    torch.manual_seed(0)
    learner = make(method, ENCODERS[kind](), OPERATORS[operator])
    loss = loss_of(learner, *views(kind))
    assert loss.shape == ()
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    loss.backward()
    trained = {name: p for name, p in learner.named_parameters() if p.requires_grad}
    parts = {"encoder"} | {"supervised": {"classifier"}, "byol": {"head", "predictor"}}.get(method, {"head"})
    assert {name.split(".")[0] for name in trained} == parts
    for name, parameter in trained.items():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # A shift before batch normalisation has no effect, so only weights must have a gradient other than zero.
        assert parameter.dim() < 2 or parameter.grad.any(), name


@pytest.mark.parametrize("method", METHODS)
def test_inputs_of_the_trained_network_get_a_gradient(method):
    learner = table_learner(method, MixUp()).eval()  # no batch statistics: a sample is felt only where it is used
    view_1, view_2 = (view.requires_grad_() for view in views())
    loss_of(learner, view_1, view_2).backward()
    assert view_1.grad.any(1).all()
    keys_are_trained = method in ("npair", "simclr", "supclr", "supnpair")
    assert (view_2.grad is not None and bool(view_2.grad.any(1).all())) == keys_are_trained


@pytest.mark.parametrize("mix", [None, MixUp()], ids=["none", "mixup"])
@pytest.mark.parametrize("method", METHODS)
def test_loss_is_float32_under_autocast(method, mix):
    learner = table_learner(method, mix)
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(learner, *views())
    assert loss.dtype == torch.float32
    assert loss.isfinite()


@pytest.mark.parametrize("method", METHODS)
def test_one_seed_gives_one_loss(method):
    learner = table_learner(method, MixUp())
    torch.manual_seed(3)
    first = loss_of(copy.deepcopy(learner), *views())
    torch.manual_seed(3)
    assert_close(loss_of(learner, *views()), first, rtol=0, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_lam_of_one_is_the_method_unmixed(method):
    """With lam = 1 the virtual label is the anchor's own; MoCo alone differs, by the other keys of the batch."""
    learner = table_learner(method, head="linear" if method != "supervised" else None).eval()
    unmixed = loss_of(learner, *views())
    learner.mix = lambda batch: (batch, Mix(torch.arange(size(batch)).flip(0), torch.ones(size(batch))))
    mixed = loss_of(learner, *views())
    if method == "moco":
        assert mixed > unmixed + 1e-3
    else:
        assert_close(mixed, unmixed)


def test_npair_is_algorithm_1_of_the_paper():
    learner = table_learner("npair", MixUp(alpha=1.0, per_sample=False, fold=False), head="mlp").eval()
    a, b = views()
    torch.manual_seed(5)
    _, drawn = learner.mix(a)
    torch.manual_seed(5)
    loss = learner(a, b)

    def model(x: Tensor) -> Tensor:
        return learner.head(learner.encoder(x))

    x, t, lam, randidx = a, TAU, drawn.lam[0], drawn.partner
    a = lam * a + (1 - lam) * a[randidx]
    logits = torch.matmul(F.normalize(model(a)), F.normalize(model(b)).T) / t
    expected = lam * nn.CrossEntropyLoss()(logits, torch.arange(len(x))) + (1 - lam) * nn.CrossEntropyLoss()(
        logits, randidx
    )
    assert_close(loss, expected)


def test_mixup_as_printed_draws_the_lam_and_the_partners_of_algorithm_1():
    """lam ~ Beta(alpha, alpha), one for the batch and on both sides of 1/2; randidx a permutation."""
    alpha, x = 0.7, torch.randn(5, 2)
    torch.manual_seed(0)
    drawn = [MixUp(alpha, per_sample=False, fold=False)(x)[1] for _ in range(4000)]
    lam = torch.stack([mix.lam[0] for mix in drawn])
    beta = torch.distributions.Beta(alpha, alpha)
    assert all((mix.lam == mix.lam[0]).all() and mix.partner.sort().values.equal(torch.arange(5)) for mix in drawn)
    assert abs(lam.mean() - beta.mean) < 4 * beta.stddev / math.sqrt(len(lam))
    assert abs(lam.var() - beta.variance) < 0.005


def test_supervised_with_mixup_equals_the_loop():
    learner = table_learner("supervised", MixUp())
    x, _ = views()
    twin = copy.deepcopy(learner)
    torch.manual_seed(2)
    loss = learner(x, labels=LABELS)
    torch.manual_seed(2)
    mixed, (partner, lam) = twin.mix(x)
    one_hot = F.one_hot(LABELS, CLASSES).float()
    log_p = twin.classifier(twin.encoder(mixed)).log_softmax(1)
    expected = 0.0
    for i in range(N):
        label = lam[i] * one_hot[i] + (1 - lam[i]) * one_hot[partner[i]]
        expected = expected - (label * log_p[i]).sum() / N
    assert_close(loss, expected)


# One pass through the encoder.


def sizes_of_calls(module: nn.Module, run) -> list[int]:
    sizes: list[int] = []
    hook = module.register_forward_pre_hook(lambda _, given: sizes.append(size(given[0])))
    run()
    hook.remove()
    return sizes


@pytest.mark.parametrize("kind", ["table", "tuple", "dict"])
@pytest.mark.parametrize(
    ("method", "mix", "rows"),
    [
        ("npair", None, 2 * N),
        ("npair", MixUp(), 2 * N),
        ("supnpair", None, 2 * N),
        ("supnpair", MixUp(), 2 * N),
        ("simclr", None, 2 * N),
        ("simclr", MixUp(), 4 * N),
        ("supclr", None, 2 * N),
        ("supclr", MixUp(), 4 * N),
        ("moco", None, N),
        ("moco", MixUp(), N),
        ("byol", None, N),
        ("byol", MixUp(), N),
        ("supervised", None, N),
        ("supervised", MixUp(), N),
    ],
)
def test_the_encoder_is_called_once(method, mix, rows, kind):
    learner = make(method, ENCODERS[kind](), mix)
    both = views(kind)
    assert sizes_of_calls(learner.encoder, lambda: loss_of(learner, *both)) == [rows]
    if method in ("moco", "byol"):
        assert sizes_of_calls(learner.key_encoder, lambda: loss_of(learner, *both)) == [N]


def test_mixed_anchors_and_clean_keys_share_batch_statistics():
    encoder = nn.Sequential(nn.BatchNorm1d(20, momentum=1.0), nn.Linear(20, 12))
    learner = make("npair", encoder, MixUp())
    view_1, view_2 = views()
    torch.manual_seed(4)
    mixed, _ = learner.mix(view_1)
    torch.manual_seed(4)
    learner(view_1, view_2)
    assert encoder[0].num_batches_tracked == 1
    assert_close(encoder[0].running_mean, torch.cat([mixed, view_2]).mean(0))
    assert_close(encoder[0].running_var, torch.cat([mixed, view_2]).var(0))


@pytest.mark.parametrize("method", ["npair", "moco", "byol", "supnpair"])
def test_only_view_1_is_mixed(method):
    given: list[Tensor] = []

    def operator(batch):
        given.append(batch)
        return MixUp()(batch)

    learner = table_learner(method, operator)
    view_1, view_2 = views()
    loss_of(learner, view_1, view_2)
    assert len(given) == 1
    assert given[0] is view_1


# The momentum network.


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_key_network_starts_as_a_copy(method):
    learner = table_learner(method)
    for name in ("encoder", "head"):
        trained, key = getattr(learner, name), getattr(learner, f"key_{name}")
        assert trained is not key
        assert_close(dict(key.state_dict()), dict(trained.state_dict()), rtol=0, atol=0)
        assert not {p.data_ptr() for p in trained.parameters()} & {p.data_ptr() for p in key.parameters()}


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_update_is_the_moving_average_of_every_parameter(method):
    m = 0.9
    torch.manual_seed(0)
    learner = make(method, ENCODERS["table"](), MixUp(), momentum=m).double()
    for _ in range(2):
        before = {name: p.clone() for name, p in learner.named_parameters() if name.startswith("key_")}
        loss_of(learner, *(view.double() for view in views())).backward()
        with torch.no_grad():
            for parameter in (p for p in learner.parameters() if p.requires_grad):
                parameter.add_(torch.randn_like(parameter))
        now = dict(learner.named_parameters())
        assert all(now[name].equal(key) for name, key in before.items()), "the key network moves only at update()"
        trained = {name: p.clone() for name, p in now.items() if not name.startswith("key_")}
        learner.update()
        for name, key in before.items():
            expected = m * key + (1 - m) * trained[name.removeprefix("key_")].detach()
            assert_close(now[name].detach(), expected, rtol=1e-13, atol=1e-13)
        assert all(now[name].equal(p) for name, p in trained.items()), "update() leaves the trained network alone"


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_key_network_keeps_its_own_batch_norm_buffers(method):
    """Parameters are averaged, buffers are not: the key network gathers its statistics from the keys' view."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.BatchNorm1d(20, momentum=1.0), nn.Linear(20, 12))
    learner = make(method, encoder, momentum=0.5)
    view_1, view_2 = views()
    view_2 = 3 * view_2 + 1
    loss_of(learner, view_1, view_2).backward()
    learner.update()
    assert_close(learner.encoder[0].running_mean, view_1.mean(0))
    assert_close(learner.key_encoder[0].running_mean, view_2.mean(0))
    assert_close(learner.key_encoder[0].running_var, view_2.var(0))
    assert learner.key_encoder[0].num_batches_tracked == 1


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_keys_carry_no_gradient(method):
    learner = table_learner(method, MixUp())
    view_1, view_2 = views()
    assert not learner.keys(view_2.requires_grad_())[0].requires_grad
    loss_of(learner, view_1, view_2).backward()
    assert view_2.grad is None
    key_network = [p for name, p in learner.named_parameters() if name.startswith("key_")]
    assert key_network
    assert all(p.grad is None and not p.requires_grad for p in key_network)


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_keys_are_made_in_training_mode(method):
    learner = table_learner(method)
    assert all(part.training for part in learner.key_encoder.modules())
    assert all(part.training for part in learner.key_head.modules())
    _, view_2 = views()
    twin = copy.deepcopy(learner)
    in_training_mode = twin.key_head.train()(twin.key_encoder.train()(view_2))
    assert_close(learner.keys(view_2)[0], in_training_mode.detach(), rtol=0, atol=0)
    assert not torch.allclose(twin.eval().keys(view_2)[0], in_training_mode)


@pytest.mark.parametrize("method", ["npair", "simclr", "supclr", "supnpair", "supervised"])
def test_update_does_nothing_without_momentum_or_queue(method):
    learner = table_learner(method, MixUp())
    loss_of(learner, *views()).backward()
    before = copy.deepcopy(learner.state_dict())
    learner.update()
    assert_close(dict(learner.state_dict()), dict(before), rtol=0, atol=0)


# MoCo's queue.


class Stamp(nn.Module):
    """An encoder whose key says which sample it is: a unit vector turned by the sample's number."""

    width = 2

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.tensor(1e-3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([(x * self.turn).cos(), (x * self.turn).sin()], 1)


class Queue:
    """A MoCo whose queue can be read as sample numbers."""

    def __init__(self, places: int) -> None:
        torch.manual_seed(0)
        self.learner = MoCo(Stamp(), queue=places, dim=2, head="linear")
        for head in (self.learner.head, self.learner.key_head):
            nn.init.eye_(head[0].weight)
            nn.init.zeros_(head[0].bias)
        self.next = 1

    def step(self, n: int, update: bool = True) -> None:
        x = torch.arange(self.next, self.next + n).float()[:, None]
        self.next += n
        self.learner(x, x)
        if update:
            self.learner.update()

    def numbers(self) -> list[int]:
        """The sample each place holds, oldest first."""
        ordered = self.learner.queue.roll(-int(self.learner.cursor), 0)
        return [round(float(torch.atan2(y, x)) * 1000) for x, y in ordered]


def test_queue_starts_as_normalised_noise():
    torch.manual_seed(0)
    queue = MoCo(nn.Linear(3, 4), queue=500, dim=16).queue
    assert queue.shape == (500, 16)
    assert_close(queue.norm(dim=1), torch.ones(500))
    assert queue.mean(0).abs().max() < 0.05
    assert not queue.requires_grad


@pytest.mark.parametrize("sizes", [(4, 4, 4), (3, 3, 3, 3, 3, 3), (5, 1, 7, 2), (7, 7, 7), (8, 9), (10, 3, 23, 1)])
def test_queue_is_first_in_first_out_for_any_batch_size(sizes):
    places, queue, seen = 7, Queue(7), 0
    kept = queue.numbers()
    for n in sizes:
        queue.step(n)
        kept = (kept + list(range(seen + 1, seen + n + 1)))[-places:]
        seen += n
        assert queue.numbers() == kept
        assert queue.learner.cursor == seen % places


def test_keys_enter_the_queue_at_update_and_once():
    queue = Queue(5)
    before = queue.learner.queue.clone()
    queue.step(3, update=False)
    assert queue.learner.queue.equal(before)
    assert queue.learner.cursor == 0
    queue.learner.update()
    assert queue.numbers()[-3:] == [1, 2, 3]
    queue.learner.update()
    assert queue.numbers()[-3:] == [1, 2, 3]
    assert queue.learner.cursor == 3


def test_keys_of_accumulated_batches_all_enter_the_queue():
    queue = Queue(5)
    queue.step(2, update=False)
    queue.step(2, update=False)
    queue.learner.update()
    assert queue.numbers()[-4:] == [1, 2, 3, 4]


def test_keys_enter_the_queue_in_training_mode_only():
    queue = Queue(5)
    before = queue.learner.queue.clone()
    queue.learner.eval()
    queue.step(3)
    assert queue.learner.queue.equal(before)
    assert queue.learner.cursor == 0


def test_queue_holds_normalised_keys_of_the_key_network():
    learner = table_learner("moco", MixUp())
    view_1, view_2 = views()
    keys = copy.deepcopy(learner).keys(view_2)[0]
    learner(view_1, view_2)
    learner.update()
    assert_close(learner.queue[:N], F.normalize(keys))
    assert_close(learner.queue.norm(dim=1), torch.ones(K))


def test_queue_survives_a_checkpoint(tmp_path):
    queue = Queue(7)
    queue.step(5)
    torch.save(queue.learner.state_dict(), tmp_path / "checkpoint.pt")
    resumed = Queue(7)
    resumed.learner.queue.zero_()
    resumed.learner.load_state_dict(torch.load(tmp_path / "checkpoint.pt", weights_only=True))
    resumed.next = queue.next
    assert resumed.learner.queue.equal(queue.learner.queue)
    assert resumed.learner.cursor == 5
    for both in (queue, resumed):
        both.step(4)
    assert resumed.learner.queue.equal(queue.learner.queue)
    assert resumed.numbers() == [3, 4, 5, 6, 7, 8, 9]


def test_moco_without_mix_is_k_plus_1_way():
    """Data pairs are independent of each other: the loss of a batch is the mean of those of its samples."""
    torch.manual_seed(0)
    learner = make("moco", nn.Linear(20, 12), head="linear").eval()
    view_1, view_2 = views()
    alone = torch.stack([learner(view_1[i : i + 1], view_2[i : i + 1]) for i in range(N)])
    assert_close(learner(view_1, view_2), alone.mean())


def test_moco_with_mix_is_n_plus_k_way():
    torch.manual_seed(0)
    learner = make("moco", nn.Linear(20, 12), MixUp(), head="linear").eval()
    view_1, view_2 = views()
    torch.manual_seed(1)
    mixed, (partner, lam) = learner.mix(view_1)
    torch.manual_seed(1)
    loss = learner(view_1, view_2)
    q, k = F.normalize(learner.head(learner.encoder(mixed))), F.normalize(learner.keys(view_2)[0])
    logits = q @ torch.cat([k, learner.queue]).T / TAU
    assert logits.shape == (N, N + K)
    own, partners = (F.cross_entropy(logits, at, reduction="none") for at in (torch.arange(N), partner))
    assert_close(loss, (lam * own + (1 - lam) * partners).mean())


# Both directions.


@pytest.mark.parametrize("mix", [None, MixUp()], ids=["none", "mixup"])
@pytest.mark.parametrize("method", ["moco", "byol"])
def test_symmetric_is_the_mean_of_both_directions(method, mix):
    """Without batch statistics, which the directions would share."""
    torch.manual_seed(0)
    learner = make(method, nn.Linear(20, 12), mix, head="mlp", symmetric=True).double()
    one_way = copy.deepcopy(learner)
    one_way.symmetric = False
    view_1, view_2 = (view.double() for view in views())
    torch.manual_seed(1)
    both = learner(view_1, view_2)
    torch.manual_seed(1)
    assert_close(both, (one_way(view_1, view_2) + one_way(view_2, view_1)) / 2)


def test_symmetric_queue_gets_the_keys_of_both_views():
    torch.manual_seed(0)
    learner = make("moco", nn.Linear(20, 12), head="linear", symmetric=True)
    view_1, view_2 = views()
    keys = [F.normalize(learner.keys(view)[0]) for view in (view_2, view_1)]
    learner(view_1, view_2)
    learner.update()
    places = torch.arange(2 * N) % K
    assert_close(learner.queue[places[2 * N - K :]], torch.cat(keys)[2 * N - K :])
    assert learner.cursor == 2 * N % K


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_symmetric_encodes_both_views_in_one_pass(method):
    rows: list[int] = []
    learner = make(method, nn.Linear(20, 12), symmetric=True)
    for network in (learner.encoder, learner.key_encoder):
        network.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    learner(*views())
    assert rows == [2 * N, 2 * N]


# BYOL.


@pytest.mark.parametrize("mix", [None, MixUp()], ids=["none", "mixup"])
def test_byol_predicts_from_the_query_side_only(mix):
    learner = table_learner("byol", mix)
    rows: list[Tensor] = []
    learner.predictor.register_forward_pre_hook(lambda _, given: rows.append(given[0]))
    view_1, view_2 = views()
    twin = copy.deepcopy(learner)
    torch.manual_seed(0)
    learner(view_1, view_2)
    torch.manual_seed(0)
    assert len(rows) == 1
    assert_close(rows[0], twin.head(twin.encoder(twin.mix(view_1)[0])))


def test_byol_is_not_symmetrised():
    learner = table_learner("byol", head="mlp").eval()
    view_1, view_2 = views()
    p, k = learner.predictor(learner.head(learner.encoder(view_1))), learner.keys(view_2)[0]
    assert_close(learner(view_1, view_2), 2 - 2 * F.cosine_similarity(p, k).mean())
    assert not torch.allclose(learner(view_1, view_2), learner(view_2, view_1))


def test_byol_predictor_has_the_encoders_width_inside():
    learner = BYOL(nn.Linear(5, 24), dim=8)
    assert [type(layer).__name__ for layer in learner.predictor] == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert learner.predictor[0].weight.shape == (24, 8)
    assert learner.predictor[-1].weight.shape == (8, 24)


# Features.


@pytest.mark.parametrize("method", METHODS)
def test_encode_gives_the_trained_encoders_features(method):
    learner = table_learner(method, MixUp())
    with torch.no_grad():
        for parameter in learner.encoder.parameters():
            parameter.add_(0.1)
    x, _ = views()
    buffers = copy.deepcopy(dict(learner.named_buffers()))
    features = learner.encode(x)
    assert features.shape == (N, 12)
    assert not features.requires_grad
    assert_close(features, copy.deepcopy(learner.encoder).eval()(x).detach(), rtol=0, atol=0)
    if method in ("moco", "byol"):
        assert not torch.allclose(features, copy.deepcopy(learner.key_encoder).eval()(x))
    assert_close(dict(learner.named_buffers()), buffers, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ENCODERS)
def test_encode_takes_any_kind_of_batch_and_treats_samples_alone(kind):
    learner = make("npair", ENCODERS[kind]())
    x, _ = views(kind)
    alone = [learner.encode(map_fields(lambda field, i=i: field[i : i + 1], x)) for i in range(N)]
    assert_close(learner.encode(x), torch.cat(alone))


def test_encode_restores_each_parts_own_mode():
    learner = table_learner("moco")
    learner.encoder.layers[2].eval()  # a batch normalisation frozen by its owner
    modes = [part.training for part in learner.modules()]
    seen: list[bool] = []
    learner.encoder.register_forward_pre_hook(lambda module, _: seen.extend(part.training for part in module.modules()))
    learner.encode(views()[0])
    assert not any(seen)
    assert [part.training for part in learner.modules()] == modes


def test_encode_restores_modes_after_an_error():
    learner = table_learner("npair")
    with pytest.raises(RuntimeError):
        learner.encode(torch.randn(N, 3))
    assert all(part.training for part in learner.modules())


# Width.


class Silent(nn.Module):
    """An encoder that does not say how many features it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Telling(Silent):
    """One that says it by some attribute."""

    def __init__(self, attribute: str) -> None:
        super().__init__()
        setattr(self, attribute, 12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "encoder",
    [
        *[lambda name=name: Telling(name) for name in ("width", "num_features", "out_features")],
        lambda: nn.Linear(20, 12),
        lambda: nn.Sequential(nn.Linear(20, 7), nn.ReLU(), nn.Linear(7, 12)),
        lambda: nn.Sequential(nn.Linear(20, 12), nn.BatchNorm1d(12)),
        lambda: nn.Sequential(nn.Linear(20, 7), nn.Sequential(nn.ReLU(), Telling("width"))),
    ],
    ids=["width", "num_features", "out_features", "linear", "sequential", "normed", "nested"],
)
def test_width_is_found(method, encoder):
    learner = make(method, encoder())
    assert learner.width == 12
    first = learner.classifier if method == "supervised" else learner.head[0]
    assert first.in_features == 12


@pytest.mark.parametrize("method", METHODS)
def test_width_can_be_given(method):
    learner = make(method, Silent(), width=12)
    assert learner.width == 12
    loss_of(learner, *views()).backward()


def test_given_width_comes_before_the_encoders_word():
    assert make("npair", Telling("width"), width=5).width == 5


@pytest.mark.parametrize("encoder", [Silent, lambda: nn.Sequential(nn.Linear(20, 12), nn.ReLU()), nn.Sequential])
@pytest.mark.parametrize("method", METHODS)
def test_unknown_width_is_an_error_that_says_what_to_do(method, encoder):
    encoder = encoder()
    with pytest.raises(imix.InputError, match=rf"{type(encoder).__name__}.*width="):
        make(method, encoder)


@pytest.mark.parametrize("method", METHODS)
def test_encoder_is_not_probed(method):
    """The width is read, never found by running the encoder on an image that it may not take."""
    encoder = Telling("width")
    encoder.forward = lambda x: pytest.fail("the encoder was run")
    make(method, encoder)


def test_unknown_head_is_refused():
    with pytest.raises(imix.InputError, match=r"mlpbn3.*choose from mlpbn, mlpbn1, mlp, linear"):
        NPair(nn.Linear(5, 4), head="mlpbn3")


# Collapse.


class Constant(nn.Module):
    """A collapsed encoder."""

    width = 12

    def __init__(self) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.linspace(-1, 1, 12))

    def forward(self, x: Tensor) -> Tensor:
        return self.vector.expand(len(x), -1)


@pytest.mark.parametrize("head", ["mlpbn", "mlpbn1", "mlp", "linear"])
@pytest.mark.parametrize("mix", [None, MixUp()], ids=["none", "mixup"])
@pytest.mark.parametrize("method", ["npair", "simclr", "moco", "supnpair", "supclr"])
def test_a_constant_encoders_loss_is_chance(method, mix, head):
    torch.manual_seed(0)
    learner = make(method, Constant(), mix, head=head)
    for _ in range(2):  # until MoCo's queue holds nothing else
        loss_of(learner, *views())
        learner.update()
    assert_close(loss_of(learner, *views()).item(), learner.chance(N), rtol=1e-6, atol=1e-6)


def test_chance_counts_the_columns():
    assert make("npair", Constant()).chance(64) == math.log(64)
    assert make("simclr", Constant()).chance(64) == math.log(127)
    assert make("moco", Constant()).chance(64) == math.log(K + 1)
    assert make("moco", Constant(), MixUp()).chance(64) == math.log(K + 64)
    assert make("byol", Constant()).chance(64) is None
    assert make("supervised", Constant()).chance(64) is None


# Labels.


@pytest.mark.parametrize("mix", [None, MixUp()], ids=["none", "mixup"])
@pytest.mark.parametrize("method", ["supclr", "supnpair", "supervised"])
def test_labels_decide_the_loss_of_the_supervised_methods(method, mix):
    losses = []
    for labels in (LABELS, (LABELS + 1) % CLASSES, LABELS.flip(0), torch.zeros(N, dtype=torch.long)):
        learner = table_learner(method, mix)
        torch.manual_seed(1)
        losses.append(loss_of(learner, *views(), labels=labels).item())
    if method == "supervised":
        assert len(set(losses)) == 4
    else:
        assert losses[1] == pytest.approx(losses[0], rel=1e-6), "names of classes do not matter, only who shares one"
        assert len({round(loss, 4) for loss in losses}) == 3


@pytest.mark.parametrize("mix", [None, MixUp()], ids=["none", "mixup"])
@pytest.mark.parametrize(("supervised", "plain"), [("supclr", "simclr"), ("supnpair", "npair")])
def test_a_class_for_each_sample_is_the_unsupervised_method(supervised, plain, mix):
    """True with `mix` too, as long as no partner is an anchor's own other view."""
    if mix is not None:

        def mix(batch):
            n = size(batch)
            partner, lam = torch.arange(n).roll(1), torch.linspace(0.5, 1, n)
            return lam[:, None] * batch + (1 - lam)[:, None] * batch[partner], Mix(partner, lam)

    loss = loss_of(table_learner(supervised, mix), *views(), labels=torch.arange(N))
    assert_close(loss, loss_of(table_learner(plain, mix), *views()))


def test_methods_say_what_forward_takes():
    taken = {name: (learner.views, learner.supervised) for name in METHODS for learner in [table_learner(name)]}
    assert taken == {
        "npair": (2, False),
        "simclr": (2, False),
        "moco": (2, False),
        "byol": (2, False),
        "supclr": (2, True),
        "supnpair": (2, True),
        "supervised": (1, True),
    }


# Copies.


def trained(method: str) -> Method:
    learner = table_learner(method, MixUp())
    optimizer = torch.optim.SGD([p for p in learner.parameters() if p.requires_grad], lr=0.1)
    for seed in (1, 2):
        loss_of(learner, *views(seed=seed)).backward()
        optimizer.step()
        optimizer.zero_grad()
        learner.update()
    return learner


@pytest.mark.parametrize("method", METHODS)
def test_a_copy_gives_the_same_loss(method):
    learner = trained(method)
    twin = copy.deepcopy(learner)
    for one in (learner, twin):
        torch.manual_seed(9)
        one.loss = loss_of(one, *views(seed=3))
    assert_close(twin.loss, learner.loss, rtol=0, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_restored_state_gives_the_same_losses_from_there_on(method, tmp_path):
    learner = trained(method)
    torch.save(learner.state_dict(), tmp_path / "state.pt")
    torch.manual_seed(123)
    restored = make(method, ENCODERS["table"](), MixUp())
    restored.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    losses = []
    for one in (learner, restored):
        torch.manual_seed(9)
        first = loss_of(one, *views(seed=3))
        one.update()
        losses.append((first.item(), loss_of(one, *views(seed=4)).item()))
    assert losses[0] == losses[1]


def test_views_of_different_length_are_refused():
    for method in ("npair", "simclr", "moco", "byol"):
        with pytest.raises(InputError, match=r"same number of samples; got \[3, 4\]"):
            make(method, nn.Linear(5, 4))(torch.randn(3, 5), torch.randn(4, 5))


def test_input_mix_is_refused_as_the_operator_of_a_method():
    with pytest.raises(InputError, match="apply it to the views"):
        imix.NPair(nn.Linear(5, 4), mix=imix.InputMix())


def test_an_empty_queue_is_refused():
    with pytest.raises(InputError, match="at least 1 key; got queue=0"):
        imix.MoCo(nn.Linear(5, 4), queue=0)


@pytest.mark.parametrize("method", [imix.NPair, imix.SimCLR, imix.MoCo, imix.BYOL, imix.SupCLR, imix.SupNPair])
@pytest.mark.parametrize("given", [{"temperature": 0.0}, {"temperature": float("nan")}, {"momentum": 1.5}, {"dim": 0}])
def test_numbers_that_cannot_be_are_refused_at_once(method, given):
    (name,) = given
    if name in inspect.signature(method).parameters:
        with pytest.raises(InputError, match=rf"{name} must|{name}=0"):
            method(nn.Linear(5, 4), **given)


def test_shuffle_bn_looks_at_the_head_too(monkeypatch):
    learner = imix.MoCo(nn.Linear(5, 4), queue=4)
    monkeypatch.setattr("imix.distributed.world_size", lambda: 2)
    assert learner._shuffles()
    imix.distributed.SyncBatchNorm.convert(learner)
    assert not learner._shuffles()


def test_an_encoder_without_parameters_may_have_a_moving_average():
    learner = imix.MoCo(nn.Flatten(), width=5, queue=4)
    learner(torch.randn(4, 5), torch.randn(4, 5))
    learner.update()


def test_a_moving_average_that_would_stand_still_is_refused():
    learner = MoCo(nn.Linear(4, 4), width=4, queue=8).to(torch.bfloat16)
    with pytest.raises(InputError, match="stands still"):
        learner.update()


def test_labels_of_other_shapes_are_refused():
    learner = Supervised(nn.Linear(4, 4), classes=3, width=4)
    assert learner(torch.randn(6, 4), torch.arange(6, dtype=torch.int32) % 3).isfinite()
    for labels in ([0, 1, 2, 0, 1, 2], torch.zeros(5), torch.zeros(6, 1)):
        with pytest.raises(InputError, match="labels of 6 samples"):
            learner(torch.randn(6, 4), labels)
