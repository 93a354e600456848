"""FED against the closed form, scipy and the paper's equation; health of representations; confusion; transfer."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.linalg import sqrtm
from torch import nn

import imix
from imix.data import Data, Tensors
from imix.errors import InputError
from imix.evaluation.features import Encoded
from imix.evaluation.fed import fed, frechet_distance
from imix.evaluation.linear import Linear, linear
from imix.files import read_lines
from imix.progress import Told
from imix.train.health import health

QUICK = imix.Settings(epochs=4, batch_size=32, encoder="small", device="cpu")
CPU = torch.device("cpu")


def encoded(features: torch.Tensor, labels: torch.Tensor | None = None) -> Encoded:
    return Encoded(nn.Identity(), Tensors(features, labels), CPU)


def covariance(seed: int, size: int, rank: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((size, rank))
    return x @ x.T / rank


# FED.


def test_fed_is_the_papers_equation():
    torch.manual_seed(0)
    train, test = torch.randn(60, 5) + 0.3, torch.randn(40, 5)
    moments = []
    for features in (train, test):
        unit = [f / f.norm() for f in features.double()]
        m = sum(unit) / len(unit)
        s = sum(torch.outer(f - m, f - m) for f in unit) / len(unit)
        moments.append((m, s))
    (m1, s1), (m2, s2) = moments
    root = sqrtm((s1 @ s2).numpy()).real
    expected = float((m1 - m2).square().sum()) + np.trace(s1.numpy() + s2.numpy() - 2 * root)
    assert fed(encoded(train), encoded(test)) == pytest.approx(expected, rel=1e-9)


def test_frechet_distance_of_diagonal_gaussians_is_the_closed_form():
    a, b = np.array([1.0, 4.0, 9.0]), np.array([4.0, 1.0, 0.25])
    means = np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 0.0])
    expected = ((means[0] - means[1]) ** 2).sum() + ((np.sqrt(a) - np.sqrt(b)) ** 2).sum()
    given = [torch.tensor(x) for x in (means[0], np.diag(a), means[1], np.diag(b))]
    assert frechet_distance(*given) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", [2, 7, 30])
def test_frechet_distance_agrees_with_scipys_square_root(size):
    s1, s2 = covariance(1, size, 2 * size), covariance(2, size, 2 * size)
    expected = np.trace(s1 + s2 - 2 * sqrtm(s1 @ s2).real)
    zero = torch.zeros(size)
    found = frechet_distance(zero, torch.from_numpy(s1), zero, torch.from_numpy(s2))
    assert found == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_frechet_distance_of_singular_covariances_is_finite_and_symmetric(rank):
    s1, s2 = (torch.from_numpy(covariance(seed, 20, max(rank, 1))) * (rank > 0) for seed in (1, 2))
    zero = torch.zeros(20)
    there, back = frechet_distance(zero, s1, zero, s2), frechet_distance(zero, s2, zero, s1)
    assert math.isfinite(there) and there == pytest.approx(back, abs=1e-6) and there >= 0
    assert frechet_distance(zero, s1, zero, s1) == pytest.approx(0, abs=1e-6)


def test_fed_needs_no_labels_and_goes_into_the_run_folder(tmp_path):
    torch.manual_seed(0)
    data = Data("given", Tensors(torch.randn(64, 6)), Tensors(torch.randn(32, 6)))
    run = imix.pretrain(data, QUICK, out=tmp_path / "run", progress=False)
    result = imix.evaluate(run, data, "fed")
    assert result.value > 0 and "e-4" in str(result)
    assert read_lines(tmp_path / "run" / "evaluations.jsonl")[-1]["value"] == result.value
    with pytest.raises(AttributeError, match="distance"):
        result.accuracy  # noqa: B018


# Health.


def test_alignment_is_the_mean_squared_distance_of_views():
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
def test_rank_counts_the_directions_in_use(directions):
    basis = torch.eye(16)[:directions].repeat(10, 1)
    assert health(basis, basis)["rank"] == pytest.approx(directions, rel=1e-4)


def test_nearest_is_the_share_whose_nearest_other_sample_is_alike():
    torch.manual_seed(0)
    a, labels = torch.randn(30, 3), torch.arange(30) % 3 - 1  # a third has no label
    unit = a / a.norm(dim=1, keepdim=True)
    known = [i for i in range(30) if labels[i] >= 0]
    alike = [
        labels[max((j for j in known if j != i), key=lambda j, i=i: float(unit[i] @ unit[j]))] == labels[i]
        for i in known
    ]
    assert health(a, a, labels)["nearest"] == pytest.approx(np.mean([bool(one) for one in alike]))
    assert "nearest" not in health(a, a) and "nearest" not in health(a, a, torch.full((30,), -1))


def test_labels_are_measured_by_and_not_learned_from():
    torch.manual_seed(0)
    x, labels = torch.randn(64, 6), torch.arange(64) % 4
    with_labels = imix.pretrain(x, QUICK, labels=labels, progress=False)
    without = imix.pretrain(x, QUICK, progress=False)
    assert "nearest" not in without.metrics[-1]
    assert all(a.equal(b) for a, b in zip(with_labels.encoder.parameters(), without.encoder.parameters(), strict=True))
    longer = imix.pretrain(x, replace(QUICK, epochs=30), labels=labels, progress=False)
    assert any(0 <= record.get("nearest", -1) <= 1 for record in longer.metrics)


def test_health_of_one_sample_or_of_nothing_but_zeros_is_finite():
    for features in (torch.ones(1, 4), torch.zeros(8, 4)):
        assert all(math.isfinite(value) for value in health(features, features).values())


def test_health_is_in_the_metrics_and_the_same_when_resumed(tmp_path):
    torch.manual_seed(0)
    x, settings = torch.randn(64, 6), replace(QUICK, epochs=30)
    whole = imix.pretrain(x, settings, progress=False)
    looked = [record for record in whole.metrics if "rank" in record]
    assert len(looked) == 6
    assert all(record["alignment"] >= 0 and record["uniformity"] <= 0 < record["rank"] for record in looked)

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
    stop.calls = 100  # it stops no more
    plain = imix.pretrain(x, settings, out=tmp_path / "run", augment=stop, resume=True, progress=False)
    undisturbed = imix.pretrain(x, settings, augment=stop, progress=False)
    same = [{k: v for k, v in record.items() if k != "views_per_second"} for record in plain.metrics]
    assert same == [{k: v for k, v in record.items() if k != "views_per_second"} for record in undisturbed.metrics]


# What the linear probe takes for what, and transfer.


def test_confusion_counts_every_test_sample_once_and_its_diagonal_is_the_accuracy():
    torch.manual_seed(0)
    labels = torch.arange(90) % 3
    features = torch.eye(3)[labels] + 0.4 * torch.randn(90, 3)
    found = linear(encoded(features, labels), encoded(features[:45], labels[:45]), 3, Linear(epochs=5))
    confusion = np.array(found.confusion)
    assert confusion.sum() == 45 and confusion.sum(1).tolist() == [15, 15, 15]
    assert np.trace(confusion) / 45 == pytest.approx(found.accuracy)
    assert 0 < found.train_accuracy <= 1


def test_no_confusion_is_kept_of_many_classes():
    labels = torch.arange(202) % 101
    features = torch.randn(202, 4)
    assert linear(encoded(features, labels), encoded(features, labels), 101, Linear(epochs=1)).confusion == []


def test_transfer_may_standardise_by_the_other_datas_samples():
    torch.manual_seed(0)
    labels = torch.arange(60) % 2
    images = torch.rand(60, 3, 8, 8) * 0.2 + 0.3 * labels[:, None, None, None]
    run = imix.pretrain(images, QUICK, labels=labels, progress=False)
    before = {name: value.clone() for name, value in run.encoder.state_dict().items()}
    other = images * 0.5 + 0.4
    plain = imix.evaluate(run, other, "knn", labels=labels)
    own = imix.evaluate(run, other, "knn", labels=labels, standardise=True)
    same = imix.evaluate(run, images, "knn", labels=labels)
    assert own.value == pytest.approx(same.value, abs=0.1) and plain.value <= 1
    assert all(before[name].equal(value) for name, value in run.encoder.state_dict().items())


def test_standardise_is_refused_where_nothing_is_standardised():
    labels = torch.arange(40) % 2
    run = imix.pretrain(
        torch.randn(40, 1, 8, 8), QUICK, imix.Reading(standardise="none"), labels=labels, progress=False
    )
    with pytest.raises(InputError, match="standardise=True is for"):
        imix.evaluate(run, torch.randn(40, 1, 8, 8), labels=labels, standardise=True)


def test_time_left_leaves_out_what_came_before_the_first_step(monkeypatch, capsys):
    now = iter([0.0, 100.0, 110.0, 130.0])
    monkeypatch.setattr("imix.progress.time.monotonic", lambda: next(now))
    told = Told("training", 1000, "steps", ends=True)
    for done in (1, 2, 4):
        told(done)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "training: 1 of 1,000 steps",
        "training: 2 of 1,000 steps  2.8 hours left",
        "training: 4 of 1,000 steps  2.8 hours left",
    ]
