"""Health metrics of the representation during training."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import imix
from imix.train.health import health

QUICK = imix.Settings(epochs=4, batch_size=32, encoder="small", device="cpu")


def test_alignment_is_the_mean_squared_distance_between_views():
    torch.manual_seed(0)
    a, b = torch.randn(20, 4), torch.randn(20, 4)
    expected = np.mean([float((x / x.norm() - y / y.norm()).square().sum()) for x, y in zip(a, b, strict=True)])
    assert health(a, b)["alignment"] == pytest.approx(expected, rel=1e-5)
    assert health(a, 3 * a)["alignment"] == pytest.approx(0, abs=1e-6)


def test_uniformity_is_the_log_mean_over_pairs():
    torch.manual_seed(0)
    a = F.normalize(torch.randn(12, 4), dim=1)
    pairs = [math.exp(-2 * float((a[i] - a[j]).square().sum())) for i in range(12) for j in range(i)]
    assert health(a, a)["uniformity"] == pytest.approx(math.log(np.mean(pairs)), rel=1e-4)


@pytest.mark.parametrize("directions", [1, 3, 8])
def test_effective_rank_counts_the_directions_in_use(directions):
    basis = torch.eye(16)[:directions].repeat(10, 1)
    assert health(basis, basis)["effective_rank"] == pytest.approx(directions, rel=1e-4)


def test_batch_1nn_is_the_fraction_whose_nearest_neighbor_has_the_same_class():
    torch.manual_seed(0)
    a, labels = torch.randn(30, 3), torch.arange(30) % 3 - 1  # a third has no label
    unit = a / a.norm(dim=1, keepdim=True)
    labeled = [i for i in range(30) if labels[i] >= 0]
    same_class = [
        labels[max((j for j in labeled if j != i), key=lambda j, i=i: float(unit[i] @ unit[j]))] == labels[i]
        for i in labeled
    ]
    assert health(a, a, labels)["batch_1nn"] == pytest.approx(np.mean([bool(same) for same in same_class]))
    assert "batch_1nn" not in health(a, a) and "batch_1nn" not in health(a, a, torch.full((30,), -1))


def test_labels_are_used_for_metrics_and_not_for_training():
    torch.manual_seed(0)
    x, labels = torch.randn(64, 6), torch.arange(64) % 4
    with_labels = imix.pretrain(x, QUICK, labels=labels, progress=False)
    without = imix.pretrain(x, QUICK, progress=False)
    assert "batch_1nn" not in without.metrics[-1]
    assert all(a.equal(b) for a, b in zip(with_labels.encoder.parameters(), without.encoder.parameters(), strict=True))
    longer = imix.pretrain(x, replace(QUICK, epochs=30), labels=labels, progress=False)
    assert any(0 <= record.get("batch_1nn", -1) <= 1 for record in longer.metrics)


def test_metrics_of_one_sample_or_of_zeros_are_finite():
    for features in (torch.ones(1, 4), torch.zeros(8, 4)):
        assert all(math.isfinite(value) for value in health(features, features).values())


@pytest.mark.slow
def test_health_metrics_are_logged_and_the_same_after_resuming(tmp_path):
    torch.manual_seed(0)
    x, settings = torch.randn(64, 6), replace(QUICK, epochs=30)
    whole = imix.pretrain(x, settings, progress=False)
    checked = [record for record in whole.metrics if "effective_rank" in record]
    assert len(checked) == 6
    assert all(record["alignment"] >= 0 and record["uniformity"] <= 0 < record["effective_rank"] for record in checked)

    class Stopped(Exception):
        pass

    def stop(batch):
        stop.calls += 1
        if stop.calls == 90:
            raise Stopped
        return batch

    stop.calls = 0
    settings = replace(settings, checkpoint_minutes=0.0)
    with pytest.raises(Stopped):
        imix.pretrain(x, settings, out=tmp_path / "run", augment=stop, progress=False)
    stop.calls = 100  # never stops again
    plain = imix.pretrain(x, settings, out=tmp_path / "run", augment=stop, resume=True, progress=False)
    undisturbed = imix.pretrain(x, settings, augment=stop, progress=False)
    same = [{k: v for k, v in record.items() if k != "views_per_second"} for record in plain.metrics]
    assert same == [{k: v for k, v in record.items() if k != "views_per_second"} for record in undisturbed.metrics]
