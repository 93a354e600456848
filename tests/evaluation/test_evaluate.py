"""`imix.evaluate`: every protocol end to end, what is recorded, and what is rejected."""

import shutil
from dataclasses import replace

import numpy as np
import polars
import pytest
import torch
from torch import nn

import imix
from imix import InputError, Settings
from imix.data import Data, TensorSource
from imix.evaluation import KNN, LinearPaper
from imix.files import read_jsonl
from imix.probes.knn import knn
from tests.probes.helpers import QUICK, blobs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return imix.pretrain("digits", QUICK, out=tmp_path_factory.mktemp("runs") / "digits", progress=False)


def encoder_state(encoder):
    weights = {name: value.clone() for name, value in encoder.state_dict().items()}
    return weights, [part.training for part in encoder.modules()], [p.requires_grad for p in encoder.parameters()]


@pytest.mark.parametrize("protocol", ["linear", "knn", "pinv", "fed", "linear-paper", "embed"])
def test_evaluation_does_not_change_the_encoder(run, protocol):
    assert any(isinstance(part, nn.BatchNorm1d) for part in run.encoder.modules())  # has running statistics
    run.encoder[-1].train()
    before, *modes = encoder_state(run.encoder)
    imix.embed(run, "digits") if protocol == "embed" else imix.evaluate(run, protocol=protocol)
    after, *modes_after = encoder_state(run.encoder)
    run.encoder.eval()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert modes == modes_after


def test_the_momentum_encoder_is_not_the_one_evaluated():
    run = imix.pretrain("digits", replace(QUICK, method="moco", momentum=0.0, queue=64), progress=False)
    frozen_keys = imix.pretrain("digits", replace(QUICK, method="moco", momentum=1.0, queue=64), progress=False)
    untrained = imix.pretrain("digits", replace(QUICK, method="moco", lr=1e-30, queue=64), progress=False)
    for other in (run, frozen_keys):
        weight = other.encoder.state_dict()["encoder.layers.1.weight"]
        assert not torch.equal(weight, untrained.encoder.state_dict()["encoder.layers.1.weight"])


# --- results and records ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_result_includes_its_hyperparameters(run):
    result = imix.evaluate(run, protocol="knn")
    assert "k 20" in str(result) and "temperature 0.07" in str(result) and "test 500" in str(result)
    linear_result = imix.evaluate(run, protocol="linear-paper")
    assert "lrs (1, 3, 5, 10, 30, 50, 70)" in str(linear_result) and "as in the paper" in str(linear_result)
    assert read_jsonl(run.path / "evaluations.jsonl")[-1]["metrics"]["accuracy"] == linear_result.accuracy
    assert imix.load_run(run.path).evaluations[-1].hyperparameters["lrs"] == [1, 3, 5, 10, 30, 50, 70]


def test_evaluations_with_different_options_have_different_records(run):
    source = blobs(100)
    in_memory = imix.pretrain(source, QUICK, progress=False)
    for protocol in ("linear", "knn", "pinv", "fed"):
        seeds = [imix.evaluate(in_memory, source, protocol, seed=seed).split.seed for seed in (0, 1)]
        assert seeds == [0, 1]
    short = LinearPaper(epochs=1, seed=3)
    result = imix.evaluate(in_memory, source, "linear-paper", seed=1, hyperparameters=short)
    assert (result.hyperparameters["seed"], result.split.seed) == (3, 1)
    assert imix.evaluate(in_memory, source, "linear", seed=1).hyperparameters["seed"] == 1
    plain, restandardized = (imix.evaluate(run, protocol="knn", restandardize=value) for value in (False, True))
    assert replace(plain, metrics={}, intervals={}, restandardized=True) == replace(
        restandardized, metrics={}, intervals={}
    )
    assert not plain.restandardized
    assert plain.split.seed is None and "seed" not in plain.hyperparameters  # nothing was random


def test_fed_needs_no_labels_and_is_stored_in_the_run_folder(tmp_path):
    torch.manual_seed(0)
    data = Data("random", TensorSource(torch.randn(64, 6)), TensorSource(torch.randn(32, 6)))
    run = imix.pretrain(data, Settings(epochs=4, batch_size=32, device="cpu"), out=tmp_path / "run", progress=False)
    result = imix.evaluate(run, data, "fed")
    assert result.value > 0 and "e-4" in str(result)
    assert read_jsonl(tmp_path / "run" / "evaluations.jsonl")[-1]["metrics"]["distance"] == result.value
    with pytest.raises(AttributeError, match="distance"):
        result.accuracy  # noqa: B018


def test_results_include_the_accuracy_of_the_most_frequent_class():
    x, y = torch.randn(100, 3), [0] * 70 + [1] * 30
    run = imix.pretrain(x, QUICK, labels=y, progress=False)
    data = Data("d", TensorSource(x, torch.tensor(y)), TensorSource(x[50:], torch.tensor(y[50:])))
    result = imix.evaluate(run, data, "linear")
    assert result.metrics["majority_accuracy"] == pytest.approx(0.4)
    assert "most frequent class: 40.00%" in str(result)


def test_results_with_a_confusion_matrix_include_the_class_names(tmp_path):
    frame = polars.DataFrame({"v": np.arange(60) * 0.5, "kind": ["cat", "dog", "fox"] * 20})
    frame.write_csv(tmp_path / "t.csv")
    run = imix.pretrain(tmp_path / "t.csv", QUICK, imix.DataSettings(label="kind"), progress=False)
    assert imix.evaluate(run, protocol="linear").classes == ["cat", "dog", "fox"]


# --- data and options ------------------------------------------------------------------------------------------------


def test_a_fifth_is_held_out_of_data_without_test_samples():
    source = blobs(100)
    run = imix.pretrain(source, QUICK, progress=False)
    result = imix.evaluate(run, source, "knn")
    assert (result.split.train, result.split.test, result.split.held_out) == (80, 20, True)


def test_a_class_may_occur_only_in_the_held_out_samples():
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    y = torch.arange(20) % 2
    y[torch.randperm(20, generator=torch.Generator().manual_seed(0))[0]] = 2  # the first row that is held out
    run = imix.pretrain(TensorSource(x, y), replace(QUICK, knn_every=1), progress=False)
    for protocol in ("linear", "knn", "pinv"):
        assert imix.evaluate(run, TensorSource(x, y), protocol).accuracy <= 0.75
    assert np.shape(imix.evaluate(run, TensorSource(x, y), "linear").confusion) == (3, 3)


def test_inputs_are_evaluated_instead_of_features(run):
    digits = imix.data.load("digits")
    result = imix.evaluate(run, "digits", "knn", inputs=True)
    preprocess = run.encoder[0]
    train, test = (TensorSource(preprocess(source.inputs), source.labels) for source in (digits.train, digits.test))
    predicted = knn(train.inputs.flatten(1), train.labels, test.inputs.flatten(1), 10).argmax(1)
    assert result.value == float((predicted == test.labels).double().mean())
    assert result.representation == "inputs" and "inputs" in str(result)
    assert imix.evaluate(run, "digits", "knn").representation == "features"


def test_random_crops_train_the_linear_classifier_on_the_papers_views():
    x = np.random.default_rng(0).integers(0, 256, (40, 3, 16, 16), dtype=np.uint8)
    run = imix.pretrain(x, Settings(epochs=1, batch_size=20, device="cpu"), progress=False)
    result = imix.evaluate(run, x, protocol="linear-paper", labels=np.arange(40) % 2, random_crops=True)
    assert result.random_crops == "shift 4, flip 0.5"
    with pytest.raises(InputError, match="`random_crops` needs `protocol='linear-paper'`; got 'knn'"):
        imix.evaluate(run, x, "knn", labels=np.arange(40) % 2, random_crops=True)


def test_a_module_that_was_trained_elsewhere_is_evaluated_like_a_run(run):
    digits = imix.data.load("digits")
    assert imix.evaluate(run.encoder, "digits", "knn").value == imix.evaluate(run, "digits", "knn").value
    assert np.array_equal(imix.embed(run.encoder, "digits"), imix.embed(run, "digits"))
    result = imix.evaluate(nn.Flatten(), digits, "knn", inputs=True)
    assert result.value == imix.evaluate(nn.Flatten(), digits, "knn").value


def test_a_method_is_evaluated_by_its_encoder():
    x, y = torch.rand(75, 5), torch.arange(75) % 3
    learner = imix.NPair(imix.encoders.build("small", (5,)))
    result = imix.evaluate(learner, x, labels=y, protocol="knn")
    assert result.value == imix.evaluate(learner.encoder, x, labels=y, protocol="knn").value
    assert np.array_equal(imix.embed(learner, x), imix.embed(learner.encoder, x))


# --- errors ----------------------------------------------------------------------------------------------------------


def test_invalid_arguments_are_rejected_by_name(run, tmp_path):
    for arguments, message in [
        ((run, None, "lda"), "unknown protocol 'lda'; choose from linear, knn, trees, pinv"),
        ((run, np.ones((9, 1, 8, 8)), "knn"), "training samples of in-memory data have no labels"),
        ((tmp_path / "nothing",), "no run folder"),
        ((tmp_path,), "not a run folder"),
    ]:
        with pytest.raises(InputError, match=message):
            imix.evaluate(*arguments)


def test_hyperparameters_of_another_protocol_are_rejected(run, tmp_path):
    for protocol, message in [
        ("linear", r"linear takes Linear\(...\) as its hyperparameters; got KNN\(k=20"),
        ("pinv", r"pinv takes PInv\(...\) as its hyperparameters"),
        ("fed", "fed takes no hyperparameters"),
    ]:
        with pytest.raises(InputError, match=message):
            imix.evaluate(run, protocol=protocol, hyperparameters=KNN())
    with pytest.raises(InputError, match=r"detection takes Detection\(...\) as its hyperparameters"):
        imix.evaluate(run, "voc", "detection", data_dir=str(tmp_path), hyperparameters=KNN())


def test_data_with_a_single_class_is_rejected(run):
    with pytest.raises(InputError, match="have the same class; evaluation needs at least two classes"):
        imix.evaluate(run, np.zeros((20, 1, 8, 8)), labels=[0] * 20)


def test_options_that_do_not_apply_are_rejected(run):
    with pytest.raises(InputError, match="`columns` only applies to tables; 'digits' is a named data set"):
        imix.evaluate(run, "digits", columns={"a": "drop"})
    with pytest.raises(InputError, match="`inputs` does not apply to detection"):
        imix.evaluate(run, "voc", "detection", data_dir=".", inputs=True)


@pytest.mark.slow
def test_no_test_samples_are_held_out_of_data_whose_labels_were_trained_on(tmp_path, monkeypatch):
    rows, classes = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 2
    columns = {f"c{i}": rows[:, i] for i in range(4)}
    polars.DataFrame({**columns, "y": classes, "z": classes}).write_csv(tmp_path / "rows.csv")
    data_settings = imix.DataSettings(label="y", columns={"z": "drop"})
    supervised = replace(QUICK, method="supnpair")
    from_file = imix.pretrain(str(tmp_path / "rows.csv"), supervised, data_settings, progress=False)
    from_arrays = imix.pretrain(rows, supervised, labels=classes, progress=False)
    shutil.copy(tmp_path / "rows.csv", tmp_path / "copy.csv")
    monkeypatch.chdir(tmp_path)
    for rejected in (
        lambda: imix.evaluate(from_file),
        lambda: imix.evaluate(from_file, "rows.csv"),
        lambda: imix.evaluate(from_file, "copy.csv"),
        lambda: imix.evaluate(from_arrays, rows, labels=classes),
    ):
        with pytest.raises(InputError, match=r"trained with the labels .* pass test samples with `test=FILE`"):
            rejected()
    imix.evaluate(from_file, protocol="fed")
    imix.evaluate(from_file, label="z")
    imix.evaluate(from_arrays, rows[:40], labels=classes[:40])
    imix.evaluate(imix.pretrain(rows, QUICK, labels=classes, progress=False), rows, labels=classes)
