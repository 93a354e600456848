"""Callbacks: when they are called, what they see, and that a run whose callback raises is resumable."""

from dataclasses import FrozenInstanceError, replace

import pytest
import torch

import imix
from imix import InputError
from tests.train.helpers import SMALL, assert_same_weights, weights


def fail_at(step, error):
    def callback(state):
        if state.step == step:
            raise error(f"at step {state.step}")

    return callback


def test_callbacks_are_called_after_every_step_epoch_and_checkpoint(table, tmp_path):
    steps, epochs, checkpoints = [], [], []
    imix.pretrain(
        table[0],
        SMALL,
        out=tmp_path / "run",
        progress=False,
        on_step=lambda state: steps.append((state.epoch, state.step)),
        on_epoch=lambda state: epochs.append((state.epoch, state.step, state.metrics["step"])),
        on_checkpoint=lambda state: checkpoints.append((state.step, imix.load_run(state.path).progress)),
    )
    assert steps == [(1 + i // 4, i + 1) for i in range(12)]
    assert epochs == [(1, 4, 4), (2, 8, 8), (3, 12, 12)]
    assert checkpoints[5] == (6, "epoch 2 of 3, step 6 of 12")
    assert checkpoints[-1] == (12, None)


def test_the_state_is_read_only_and_callbacks_do_not_change_the_run(table):
    states = []

    def spy(state):
        torch.rand(3)
        states.append(state)

    plain = imix.pretrain(table[0], replace(SMALL, masking=0.2), progress=False)
    run = imix.pretrain(table[0], replace(SMALL, masking=0.2), progress=False, on_step=spy)
    assert_same_weights(weights(plain), weights(run))
    assert sum(state.loss for state in states[:4]) / 4 == pytest.approx(run.metrics[0]["loss"])
    assert [state.lr for state in states[3::4]] == [record["lr"] for record in run.metrics]
    with pytest.raises(FrozenInstanceError):
        states[0].step = 5
    with pytest.raises(TypeError):
        states[-1].metrics["loss"] = 0.0


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["on_step", "on_epoch", "on_checkpoint"])
@pytest.mark.parametrize("minutes", [0.0, 60.0])
def test_a_run_whose_callback_raises_is_resumed_bit_for_bit(table, tmp_path, name, minutes, error):
    settings = replace(SMALL, checkpoint_minutes=minutes)
    expected = imix.pretrain(table[0], settings, progress=False)
    step = 12 if name == "on_checkpoint" else 8
    with pytest.raises(error, match=f"at step {step}"):
        imix.pretrain(table[0], settings, out=tmp_path / "run", progress=False, **{name: fail_at(step, error)})
    resumed = imix.pretrain(table[0], settings, out=tmp_path / "run", resume=True, progress=False)
    assert_same_weights(weights(expected), weights(resumed))
    losses = [[record["loss"] for record in run.metrics] for run in (expected, resumed)]
    assert losses[0] == losses[1]


def test_a_callback_that_is_not_a_function_is_rejected(table):
    with pytest.raises(InputError, match="`on_epoch` must be a function"):
        imix.pretrain(table[0], SMALL, on_epoch="print", progress=False)
    with pytest.raises(InputError, match="did you mean 'on_checkpoint'"):
        imix.pretrain(table[0], SMALL, on_checkpoints=print, progress=False)


def test_on_checkpoint_needs_a_run_folder(table):
    with pytest.raises(InputError, match=r"`on_checkpoint` is called when a checkpoint is written .*; pass `out`"):
        imix.pretrain(table[0], SMALL, on_checkpoint=print, progress=False)
