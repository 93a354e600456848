"""Fine-tuning a detector: training, resuming, and several ranks."""

import os
import signal
from dataclasses import replace
from datetime import timedelta
from itertools import islice

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.testing import assert_close

from imix import InputError, Interrupted, TrainingError, progress
from imix.detection import Detection, finetune, read_voc
from imix.detection.finetune import CHECKPOINT, FineTuning, _random_flip
from imix.detection.voc import load_samples
from imix.runtime import distributed
from imix.runtime.sync_bn import convert_sync_bn
from tests.detection.helpers import CPU, SHAPES, TINY, narrow_encoder

EVERY_STEP = replace(TINY, checkpoint_minutes=0.0)  # a checkpoint after each step


def record_final_weights(patch) -> list[dict[str, torch.Tensor]]:
    """Return a list to which every fine-tuning adds its weights before the test."""
    states, detect = [], FineTuning.detect

    def record_and_detect(self, *args):
        states.append({name: value.clone() for name, value in self.model.state_dict().items()})
        return detect(self, *args)

    patch.setattr(FineTuning, "detect", record_and_detect)
    return states


def call_before_step(patch, step: int, function) -> None:
    original = FineTuning.step

    def patched(self, number, samples):
        if number == step:
            function()
        return original(self, number, samples)

    patch.setattr(FineTuning, "step", patched)


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_step_in_bfloat16_is_close_to_one_in_float32(shapes):
    train, _ = read_voc(shapes)
    losses = []
    for bf16 in (False, True):
        tuning = FineTuning(narrow_encoder(), train, TINY, CPU, bf16)
        losses.append([tuning.step(step, samples) for step, samples in enumerate(tuning.batches(0, 2))])
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert losses[0] != losses[1]


def test_boxes_are_flipped_together_with_their_image():
    image = torch.zeros(3, 20, 30, dtype=torch.uint8)
    image[:, 4:9, 2:12] = 255
    target = {"boxes": torch.tensor([[2.0, 4.0, 12.0, 9.0]]), "labels": torch.tensor([1])}
    torch.manual_seed(0)
    images, targets = _random_flip([(image, target)] * 16, CPU)
    left_sides = set()
    for pixels, flipped_target in zip(images, targets, strict=True):
        left, top, right, bottom = flipped_target["boxes"][0].int().tolist()
        assert pixels[:, top:bottom, left:right].min() == 1 and pixels.sum() == 3 * 50
        left_sides.add(left)
    assert left_sides == {2, 18}
    assert target["boxes"].tolist() == [[2, 4, 12, 9]]


@pytest.mark.slow
@pytest.mark.parametrize("cause", ["exception", "SIGTERM"])
def test_a_resumed_fine_tuning_equals_an_uninterrupted_one(shapes, tmp_path, monkeypatch, cause):
    final_weights = record_final_weights(monkeypatch)
    train, test = read_voc(shapes)
    encoder = narrow_encoder()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    torch.manual_seed(5)
    expected = finetune(encoder, train, test, TINY, progress=False)
    next_number = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(next_number, torch.rand(1))  # the caller's random state is unchanged

    hyperparameters = replace(TINY, checkpoint_minutes=0.0 if cause == "exception" else 5.0)
    with monkeypatch.context() as patch:
        call_before_step(patch, 2, interrupt if cause == "exception" else lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(KeyboardInterrupt if cause == "exception" else Interrupted):
            finetune(encoder, train, test, hyperparameters, folder=tmp_path, progress=False)
    assert (tmp_path / CHECKPOINT).exists()
    torch.manual_seed(77)
    assert finetune(encoder, train, test, TINY, folder=tmp_path, progress=False) == expected
    assert not list(tmp_path.iterdir())
    assert len(final_weights) == 2
    for name, value in final_weights[0].items():
        assert torch.equal(value, final_weights[1][name]), name
    trained = {name: final_weights[0][f"backbone.layers.{name.removeprefix('1.')}"] for name in first_stage(before)}
    assert any(not torch.equal(before[name], value) for name, value in trained.items())
    for name, value in encoder.state_dict().items():
        assert torch.equal(value, before[name])


def first_stage(state) -> list[str]:
    return [name for name in state if name.startswith("1.layer1")]


def test_a_checkpoint_of_another_fine_tuning_is_rejected(shapes, tmp_path, monkeypatch):
    train, test = read_voc(shapes)
    with monkeypatch.context() as patch:
        call_before_step(patch, 1, interrupt)
        with pytest.raises(KeyboardInterrupt):
            finetune(narrow_encoder(), train, test, EVERY_STEP, folder=tmp_path, progress=False)
    with pytest.raises(InputError, match=r"was written with other settings \(different: lr\); remove it"):
        finetune(narrow_encoder(), train, test, replace(TINY, lr=0.1), folder=tmp_path, progress=False)
    other = narrow_encoder()
    other[1].conv1.weight.data += 1
    with pytest.raises(InputError, match=r"was written with other settings \(different: encoder\)"):
        finetune(other, train, test, TINY, folder=tmp_path, progress=False)
    (tmp_path / CHECKPOINT).write_bytes(b"nothing")
    with pytest.raises(InputError, match="damaged or not a checkpoint; remove it"):
        finetune(narrow_encoder(), train, test, TINY, folder=tmp_path, progress=False)


@pytest.fixture(scope="module")
def detection_pt(shapes, tmp_path_factory):
    """The checkpoint of a fine-tuning that was interrupted after a step."""
    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.MonkeyPatch.context() as patch:
        call_before_step(patch, 1, interrupt)
        with pytest.raises(KeyboardInterrupt):
            finetune(narrow_encoder(), *read_voc(shapes), EVERY_STEP, folder=folder, progress=False)
    return folder / CHECKPOINT


def optimizer_state(state):
    return state["optimizer"]["state"]


def replace_weight(change):
    def damage(state):
        name = next(iter(state["learner"]))
        state["learner"][name] = change(state["learner"][name])

    return damage


def replace_momentum(change):
    return lambda state: optimizer_state(state)[0].update(momentum_buffer=change(optimizer_state(state)[0]))


def nested_lists(depth):
    """A list that is short in a file, because its parts are shared, and has 2 ** depth items when it is printed."""
    values = [0]
    for _ in range(depth):
        values = [values, values]
    return values


WRONG_TENSOR = "must be a contiguous float32 tensor of shape"
WRONG_SETTINGS = r"was written with other settings \(different: "
NOT_A_CHECKPOINT = "is damaged or not a checkpoint"
DAMAGES = {
    "weight of one number": (replace_weight(lambda weight: torch.zeros(1)), WRONG_TENSOR),
    "weight is a view": (replace_weight(lambda weight: torch.zeros(1).expand(weight.shape)), WRONG_TENSOR),
    "missing weights": (lambda state: state["learner"].clear(), "its weights have no "),
    "momentum of one number": (replace_momentum(lambda entry: torch.zeros(1)), WRONG_TENSOR),
    "momentum is a view": (
        replace_momentum(lambda entry: torch.zeros(1).expand(entry["momentum_buffer"].shape)),
        WRONG_TENSOR,
    ),
    "momentum of 3e9 numbers": (replace_momentum(lambda entry: torch.zeros(1).expand(3 * 10**9)), WRONG_TENSOR),
    "no momentum": (lambda state: optimizer_state(state)[0].clear() or optimizer_state(state).pop(1), "have no 1"),
    "no optimizer state": (lambda state: optimizer_state(state).clear(), "its optimizer state have no 0"),
    "no optimizer": (lambda state: state.pop("optimizer"), NOT_A_CHECKPOINT),
    "negative epoch": (lambda state: state.update(epoch=-1), "has an epoch or step out of range"),
    "huge epoch": (lambda state: state.update(epoch=10**30), "has an epoch or step out of range"),
    "epoch is a tensor": (lambda state: state.update(epoch=torch.zeros(3)), NOT_A_CHECKPOINT),
    "negative step": (lambda state: state.update(step=-1), "has an epoch or step out of range"),
    "step after the last": (lambda state: state.update(step=5), "has an epoch or step out of range"),
    "fractional step": (lambda state: state.update(step=0.5), NOT_A_CHECKPOINT),
    "no settings": (lambda state: state.pop("identity"), NOT_A_CHECKPOINT),
    "setting of 3e9 numbers": (
        lambda state: state["identity"].update(milestones=(torch.zeros(1).expand(3 * 10**9),)),
        WRONG_SETTINGS + "milestones",
    ),
    "setting that is endless when printed": (
        lambda state: state["identity"].update(lr=nested_lists(60)),
        WRONG_SETTINGS + "lr",
    ),
    "setting of another type": (lambda state: state["identity"].update(bf16=0), WRONG_SETTINGS + "bf16"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_or_hostile_checkpoint_is_refused_in_one_line_before_it_is_used(
    shapes, detection_pt, tmp_path, monkeypatch, name
):
    damage, message = DAMAGES[name]
    state = torch.load(detection_pt, weights_only=True)
    damage(state)
    torch.save(state, tmp_path / CHECKPOINT)
    content = (tmp_path / CHECKPOINT).read_bytes()
    monkeypatch.setattr(FineTuning, "step", lambda *args: pytest.fail("trained with a damaged checkpoint"))
    with pytest.raises(InputError, match=message) as error:
        finetune(narrow_encoder(), *read_voc(shapes), TINY, folder=tmp_path, progress=False)
    assert len(str(error.value)) < 400 and str(error.value).isprintable()
    assert f"; remove {tmp_path / CHECKPOINT} to" in str(error.value) or "; remove it to" in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]
    assert (tmp_path / CHECKPOINT).read_bytes() == content


def test_a_loss_that_is_not_finite_stops_the_fine_tuning(shapes, tmp_path):
    train, test = read_voc(shapes)
    with pytest.raises(TrainingError, match="Try a lower lr"):
        finetune(narrow_encoder(), train, test, replace(TINY, lr=1e30, warmup=0), folder=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


def test_an_encoder_that_is_not_a_resnet_is_rejected(shapes):
    train, test = read_voc(shapes)
    with pytest.raises(InputError, match="detection needs a ResNet; the encoder is a Flatten"):
        finetune(nn.Sequential(nn.Identity(), nn.Flatten()), train, test, TINY, progress=False)


def test_each_epoch_visits_every_image_once_and_batches_span_epochs(shapes):
    train, _ = read_voc(shapes)
    tuning = FineTuning(narrow_encoder(), train, replace(TINY, batch_size=5), CPU, False)
    originals = [image for image, _ in load_samples(train.images, "RGB", include_difficult=False)]

    def index(image):
        return next(i for i, original in enumerate(originals) if torch.equal(image, original))

    order = [index(image) for samples in tuning.batches(0, 12) for image, _ in samples]
    for epoch in range(5):
        assert sorted(order[12 * epoch : 12 * epoch + 12]) == list(range(12))
    resumed = [index(image) for samples in islice(tuning.batches(3, 12), 2) for image, _ in samples]
    assert resumed == order[15:25]


@pytest.mark.slow
def test_a_small_detector_memorizes_its_training_images(shapes, capsys, monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0)
    train, test = read_voc(shapes)
    hyperparameters = Detection(
        iterations=160,
        batch_size=4,
        lr=0.05,
        warmup=20,
        milestones=(128,),
        min_sizes=(112, 128),
        test_size=128,
        max_size=240,
        regions=32,
        precise_bn=10,
    )
    result = finetune(narrow_encoder(), train, test, hyperparameters)
    assert result.ap50 > 0.9
    assert set(result.per_class) == set(SHAPES)
    messages = capsys.readouterr().err
    assert "fine-tuning: 160 of 160 steps, loss" in messages and "seconds left" in messages
    assert "detecting: 12 of 12 test images" in messages


def test_no_rank_exits_before_the_checkpoint_is_written(shapes, tmp_path, monkeypatch):
    train, test = read_voc(shapes)
    checkpoint_exists = []
    monkeypatch.setattr(distributed, "barrier", lambda: checkpoint_exists.append((tmp_path / CHECKPOINT).exists()))
    call_before_step(monkeypatch, 2, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted, match="the fine-tuning can be resumed"):
        finetune(narrow_encoder(), train, test, TINY, folder=tmp_path, progress=False)
    assert checkpoint_exists == [False, True]


HEIGHTS = (3, 5)  # of the feature map on each rank


def run_norm(x, weight, norm):
    x = x.clone().requires_grad_()
    y = norm(x)
    (y * weight).sum().backward()
    return {"output": y.detach(), "gradient": x.grad, "mean": norm.running_mean, "variance": norm.running_var}


def feature_maps():
    """An input and the gradient of its output, for each rank."""
    generator = torch.Generator().manual_seed(0)
    return [
        (2 * torch.randn(1, 4, height, 2, generator=generator) + 1, torch.randn(1, 4, height, 2, generator=generator))
        for height in HEIGHTS
    ]


def finetune_on_rank(rank: int, folder: str, shapes) -> None:
    torch.set_num_threads(1)
    os.environ["WORLD_SIZE"] = "2"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    train, test = read_voc(shapes)
    with pytest.MonkeyPatch.context() as patch:
        final_weights = record_final_weights(patch)
        result = finetune(narrow_encoder(), train, test, TINY, progress=False)
    synced = run_norm(*feature_maps()[rank], convert_sync_bn(nn.BatchNorm2d(4), torch.device("cpu")))
    with pytest.raises(InputError) as error:
        finetune(narrow_encoder(), train, test, replace(TINY, batch_size=3), progress=False)
    outputs = {"result": vars(result), "weights": final_weights[0], "synced": synced, "error": str(error.value)}
    torch.save(outputs, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_train_the_same_detector(shapes, tmp_path):
    mp.spawn(finetune_on_rank, (str(tmp_path), shapes), nprocs=2)
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2)]
    assert ranks[0]["result"] == ranks[1]["result"]
    for name, value in ranks[0]["weights"].items():
        assert value.isfinite().all()
        assert torch.equal(value, ranks[1]["weights"][name]), name
    assert ranks[0]["error"] == "batch_size must be a multiple of the 2 ranks; got 3"

    both = [torch.cat([part.flatten(2) for part in parts], 2)[..., None] for parts in zip(*feature_maps(), strict=True)]
    expected = run_norm(*both, nn.BatchNorm2d(4))
    for name in ("mean", "variance"):
        for outputs in ranks:
            assert_close(outputs["synced"][name], expected[name])
    for name in ("output", "gradient"):
        parts = [outputs["synced"][name].flatten(2) for outputs in ranks]
        assert_close(torch.cat(parts, 2)[..., None], expected[name], rtol=1e-4, atol=1e-5)
