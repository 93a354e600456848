"""`keep_best` and `patience`: what is measured, the best encoder beside the last, early stopping, resuming."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import imix
from imix import InputError
from imix.run import checkpoint
from imix.train import best as best_module
from tests.probes.helpers import QUICK
from tests.train.helpers import SMALL, assert_same_weights, weights

METRICS = ["knn", "effective_rank", "alignment"]
PATIENT = replace(SMALL, epochs=9, schedule="constant", keep_best="effective_rank", patience=2, masking=0.2)


class Stop(Exception):
    pass


@pytest.fixture
def measured(monkeypatch):
    """Replace the measurements of the encoder by fixed values: epoch 3 is the best."""

    def measure(first, second):
        measure.calls += 1
        return {"effective_rank": VALUES[measure.calls - 1]}

    VALUES = [1.0, 2.0, 4.0, 3.0, 3.5, 5.0, 6.0, 7.0, 8.0]
    measure.calls = 0
    monkeypatch.setattr(best_module, "health", measure)
    return measure


@pytest.mark.parametrize("metric", METRICS)
def test_the_best_encoder_is_kept_and_the_run_does_not_change(table, tmp_path, metric):
    settings = replace(SMALL, masking=0.2)
    plain = imix.pretrain(table[0], settings, labels=table[1], progress=False)
    chosen = replace(settings, keep_best=metric)
    run = imix.pretrain(table[0], chosen, labels=table[1], out=tmp_path / "run", progress=False)
    assert_same_weights(weights(plain), weights(run))
    values = [record[f"keep_best_{metric}"] for record in run.metrics]
    epoch = values.index(min(values) if metric == "alignment" else max(values)) + 1
    kept = imix.load_run(tmp_path / "run" / "best_encoder.safetensors")
    assert kept.progress == f"epoch {epoch} of 3, step {4 * epoch} of 12"
    same_length = {}
    imix.pretrain(
        table[0],
        replace(chosen, checkpoint_minutes=0),
        labels=table[1],
        out=tmp_path / "spied",
        progress=False,
        on_checkpoint=lambda state: same_length.update({state.step: weights(imix.load_run(state.path))}),
    )
    assert_same_weights(weights(kept), same_length[4 * epoch])


def test_knn_is_measured_on_held_out_training_labels_and_never_on_the_test_set(tmp_path):
    x, y = torch.randn(60, 3), torch.arange(60) % 2
    arrays = {"x": x.numpy(), "y": y.numpy()}
    for name, x_test in (("a", x[:10]), ("b", 100 * x[10:20])):
        np.savez(tmp_path / f"{name}.npz", **arrays, x_test=x_test.numpy(), y_test=1 - y[:10].numpy())
    settings = replace(QUICK, epochs=2, keep_best="knn")
    first, second = (
        imix.pretrain(tmp_path / f"{name}.npz", settings, out=tmp_path / name, progress=False) for name in "ab"
    )
    assert [record["keep_best_knn"] for record in first.metrics] == [r["keep_best_knn"] for r in second.metrics]


def test_patience_stops_early_and_resuming_changes_nothing(table, tmp_path, measured, capsys):
    run = imix.pretrain(table[0], PATIENT, out=tmp_path / "run", progress=False)
    assert run.metrics[-1]["epoch"] == 5
    assert "stopped after epoch 5 of 9: effective_rank was not better than after epoch 3 for 2 epochs" in (
        capsys.readouterr().err
    )
    assert imix.load_run(tmp_path / "run").progress is None
    kept = imix.load_run(tmp_path / "run" / "best_encoder.safetensors")
    assert kept.progress == "epoch 3 of 9, step 12 of 36"
    again = imix.pretrain(table[0], PATIENT, out=tmp_path / "run", resume=True, progress=False)
    assert again.metrics == run.metrics
    assert_same_weights(weights(again), weights(run))


@pytest.mark.parametrize("epoch", [2, 3, 4, 5])
def test_the_best_encoder_and_patience_survive_a_kill(table, tmp_path, measured, epoch):
    expected = imix.pretrain(table[0], PATIENT, out=tmp_path / "undisturbed", progress=False)

    def fail(state):
        if state.epoch == epoch:
            raise Stop

    measured.calls = 0
    with pytest.raises(Stop):
        imix.pretrain(table[0], PATIENT, out=tmp_path / "run", progress=False, on_epoch=fail)
    measured.calls = epoch - 1  # its last checkpoint was written before the last step of the epoch
    resumed = imix.pretrain(table[0], PATIENT, out=tmp_path / "run", resume=True, progress=False)
    assert_same_weights(weights(expected), weights(resumed))
    for name in ("encoder.safetensors", "best_encoder.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def test_the_best_encoder_can_be_evaluated_beside_the_last(tmp_path):
    settings = replace(SMALL, batch_size=256, keep_best="effective_rank")
    run = imix.pretrain("digits", settings, out=tmp_path / "run", progress=False)
    result = imix.evaluate(tmp_path / "run" / "best_encoder.safetensors", protocol="knn", device="cpu")
    assert result.progress.endswith("of 15")
    assert run.evaluations == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 2, "schedule": "constant"}, "`patience` needs `keep_best`"),
        ({"patience": 2, "keep_best": "knn"}, "`patience` needs `keep_best`, and `schedule='constant'`"),
        ({"keep_best": "knn", "method": "supclr"}, "does not work with method 'supclr'"),
        ({"keep_best": "loss"}, "unknown `keep_best` 'loss'"),
        ({"keep_best": "knn", "out": None}, r"`keep_best` writes best_encoder\.safetensors .*; pass `out`"),
    ],
)
def test_combinations_without_meaning_are_rejected(table, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        imix.pretrain(table[0], labels=table[1], progress=False, **{"out": tmp_path / "run"} | options)
    assert not (tmp_path / "run").exists()


def test_patience_needs_no_run_folder(table, measured):
    assert imix.pretrain(table[0], PATIENT, progress=False).metrics[-1]["epoch"] == 5


@pytest.mark.parametrize(
    "change",
    [
        {"value": "high"},
        {"epoch": 99},
        {"weights": {}},
        {"weights": {"encoder.layers.1.weight": torch.zeros(2)}},
    ],
    ids=str,
)
def test_a_damaged_best_encoder_in_a_checkpoint_is_rejected(table, tmp_path, change):
    settings = replace(SMALL, keep_best="effective_rank")
    imix.pretrain(table[0], settings, out=tmp_path / "run", progress=False)
    path = tmp_path / "run" / "checkpoint.pt"
    state = checkpoint.load(path)
    checkpoint.save(path, state | {"best": state["best"] | change})
    with pytest.raises(InputError, match="does not match the"):
        imix.pretrain(table[0], settings, out=tmp_path / "run", resume=True, progress=False)
