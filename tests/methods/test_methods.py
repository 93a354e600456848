"""Properties that all methods share: each matches its equation, with every mixing operator and type of batch."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from imix.batch import map_fields, size
from imix.methods import Method
from imix.mix import Mix, MixUp
from tests.methods.equations import by_hand
from tests.methods.helpers import (
    CASES,
    CLASSES,
    ENCODERS,
    LABELS,
    METHODS,
    OPERATORS,
    K,
    N,
    build,
    loss_of,
    table_learner,
    views,
)


@pytest.mark.parametrize(("kind", "operator"), CASES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_every_operator_matches_its_equation(method, kind, operator):
    """Compares the loss and the gradient of every parameter."""
    torch.manual_seed(0)
    learner = build(method, ENCODERS[kind](), OPERATORS[operator]).double()
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
def test_every_method_with_every_operator_has_a_float32_loss_and_trains_every_parameter(method, kind, operator):
    torch.manual_seed(0)
    learner = build(method, ENCODERS[kind](), OPERATORS[operator])
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
        # A bias before batch normalization has no effect, so only weights must have a nonzero gradient.
        assert parameter.dim() < 2 or parameter.grad.any(), name


@pytest.mark.parametrize("method", METHODS)
def test_inputs_of_the_trained_network_get_a_gradient(method):
    learner = table_learner(
        method, MixUp()
    ).eval()  # no batch statistics, through which every sample would get a gradient
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
def test_the_same_seed_gives_the_same_loss(method):
    learner = table_learner(method, MixUp())
    torch.manual_seed(3)
    first = loss_of(copy.deepcopy(learner), *views())
    torch.manual_seed(3)
    assert_close(loss_of(learner, *views()), first, rtol=0, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_lam_of_1_equals_the_method_without_mixing(method):
    """MoCo differs: with mixing, the other keys of the batch are negatives too."""
    learner = table_learner(method, head="linear" if method != "supervised" else None).eval()
    unmixed = loss_of(learner, *views())
    learner.mix = lambda batch: (batch, Mix(torch.arange(size(batch)).flip(0), torch.ones(size(batch))))
    mixed = loss_of(learner, *views())
    if method == "moco":
        assert mixed > unmixed + 1e-3
    else:
        assert_close(mixed, unmixed)


def batch_sizes_of_calls(module: nn.Module, run) -> list[int]:
    sizes: list[int] = []
    hook = module.register_forward_pre_hook(lambda _, inputs: sizes.append(size(inputs[0])))
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
    learner = build(method, ENCODERS[kind](), mix)
    both = views(kind)
    assert batch_sizes_of_calls(learner.encoder, lambda: loss_of(learner, *both)) == [rows]
    if method in ("moco", "byol"):
        assert batch_sizes_of_calls(learner.key_encoder, lambda: loss_of(learner, *both)) == [N]


def test_mixed_anchors_and_unmixed_keys_share_batch_statistics():
    encoder = nn.Sequential(nn.BatchNorm1d(20, momentum=1.0), nn.Linear(20, 12))
    learner = build("npair", encoder, MixUp())
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
    mixed_batches: list[Tensor] = []

    def operator(batch):
        mixed_batches.append(batch)
        return MixUp()(batch)

    learner = table_learner(method, operator)
    view_1, view_2 = views()
    loss_of(learner, view_1, view_2)
    assert len(mixed_batches) == 1
    assert mixed_batches[0] is view_1


@pytest.mark.parametrize("method", ["npair", "simclr", "supclr", "supnpair", "supervised"])
def test_update_does_nothing_without_momentum_or_queue(method):
    learner = table_learner(method, MixUp())
    loss_of(learner, *views()).backward()
    before = copy.deepcopy(learner.state_dict())
    learner.update()
    assert_close(dict(learner.state_dict()), dict(before), rtol=0, atol=0)


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
def test_the_loss_of_a_constant_encoder_is_the_chance_loss(method, mix, head):
    torch.manual_seed(0)
    learner = build(method, Constant(), mix, head=head)
    for _ in range(2):  # fills MoCo's queue with the constant key
        loss_of(learner, *views())
        learner.update()
    assert_close(loss_of(learner, *views()).item(), learner.chance_loss(N), rtol=1e-6, atol=1e-6)


def test_chance_loss_is_the_logarithm_of_the_number_of_keys():
    assert build("npair", Constant()).chance_loss(64) == math.log(64)
    assert build("simclr", Constant()).chance_loss(64) == math.log(127)
    assert build("moco", Constant()).chance_loss(64) == math.log(K + 1)
    assert build("moco", Constant(), MixUp()).chance_loss(64) == math.log(K + 64)
    assert build("byol", Constant()).chance_loss(64) is None
    assert build("supervised", Constant()).chance_loss(64) is None


@pytest.mark.parametrize("mix", [None, MixUp()], ids=["none", "mixup"])
@pytest.mark.parametrize("method", ["supclr", "supnpair", "supervised"])
def test_the_loss_of_supervised_methods_depends_on_the_labels(method, mix):
    losses = []
    for labels in (LABELS, (LABELS + 1) % CLASSES, LABELS.flip(0), torch.zeros(N, dtype=torch.long)):
        learner = table_learner(method, mix)
        torch.manual_seed(1)
        losses.append(loss_of(learner, *views(), labels=labels).item())
    if method == "supervised":
        assert len(set(losses)) == 4
    else:
        assert losses[1] == pytest.approx(losses[0], rel=1e-6), (
            "only which samples share a class matters, not its number"
        )
        assert len({round(loss, 4) for loss in losses}) == 3


@pytest.mark.parametrize("mix", [None, MixUp()], ids=["none", "mixup"])
@pytest.mark.parametrize(("supervised", "plain"), [("supclr", "simclr"), ("supnpair", "npair")])
def test_one_class_per_sample_equals_the_unsupervised_method(supervised, plain, mix):
    """Also with mixing, as long as no partner is the other view of the same sample."""
    if mix is not None:

        def mix(batch):
            n = size(batch)
            partner, lam = torch.arange(n).roll(1), torch.linspace(0.5, 1, n)
            return lam[:, None] * batch + (1 - lam)[:, None] * batch[partner], Mix(partner, lam)

    loss = loss_of(table_learner(supervised, mix), *views(), labels=torch.arange(N))
    assert_close(loss, loss_of(table_learner(plain, mix), *views()))


def test_class_attributes_say_what_forward_takes():
    signatures = {name: (learner.n_views, learner.supervised) for name in METHODS for learner in [table_learner(name)]}
    assert signatures == {
        "npair": (2, False),
        "simclr": (2, False),
        "moco": (2, False),
        "byol": (2, False),
        "supclr": (2, True),
        "supnpair": (2, True),
        "supervised": (1, True),
    }


def trained_learner(method: str) -> Method:
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
    learner = trained_learner(method)
    twin = copy.deepcopy(learner)
    losses = []
    for copied in (learner, twin):
        torch.manual_seed(9)
        losses.append(loss_of(copied, *views(seed=3)))
    assert_close(*losses, rtol=0, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_restored_learner_continues_with_the_same_losses(method, tmp_path):
    learner = trained_learner(method)
    torch.save(learner.state_dict(), tmp_path / "state.pt")
    torch.manual_seed(123)
    restored = build(method, ENCODERS["table"](), MixUp())
    restored.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    losses = []
    for resumed in (learner, restored):
        torch.manual_seed(9)
        first = loss_of(resumed, *views(seed=3))
        resumed.update()
        losses.append((first.item(), loss_of(resumed, *views(seed=4)).item()))
    assert losses[0] == losses[1]
