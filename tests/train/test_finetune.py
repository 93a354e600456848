"""`imix.finetune` and `imix.predict`: what is learned, stored and rejected."""

import numpy as np
import polars
import pytest
import torch
from torch import nn

import imix
from imix import InputError
from imix.data import TensorSource
from imix.evaluation.samples import encode
from imix.probes.linear import fit_linear
from imix.run.classifier import Classifier
from imix.settings import FineTuning
from imix.train import finetune as module
from tests.probes.helpers import QUICK, blobs

pytestmark = pytest.mark.slow
QUICK_TUNING = {"epochs": 3, "device": "cpu"}


@pytest.fixture(scope="module")
def run():
    return imix.pretrain(blobs(300), QUICK, progress=False)


@pytest.fixture(scope="module")
def labeled():
    return blobs(60, seed=1, noise=2)


def accuracy(tuned, source):
    predicted = imix.predict(tuned, source, device="cpu").probabilities.argmax(1)
    return float((predicted == source.labels.numpy()).mean())


def test_a_classifier_is_learned_from_few_labels(run, labeled):
    tuned = imix.finetune(run, labeled, epochs=20, device="cpu")
    assert accuracy(tuned, blobs(200, seed=2, noise=2)) > 0.85
    assert tuned.config.classes == ("0", "1", "2") and tuned.config.fine_tuning.include_inputs


def test_the_pretrained_run_is_not_changed(run, labeled):
    before = {name: value.clone() for name, value in run.encoder.state_dict().items()}
    tuned = imix.finetune(run, labeled, held_out=0.0, **QUICK_TUNING)
    assert all(torch.equal(value, run.encoder.state_dict()[name]) for name, value in before.items())
    assert any(not torch.equal(value, tuned.encoder.state_dict()[name]) for name, value in before.items())
    assert run.head is None and run.config.fine_tuning is None


def test_the_head_starts_as_the_linear_classifier_on_frozen_features(run, labeled, monkeypatch):
    monkeypatch.setattr(module._Trainer, "fit", lambda self, rows, epochs, held_out=None: (self.start(rows), [], 0))
    tuned = imix.finetune(run, labeled, include_inputs=False, device="cpu")
    samples = encode(run.encoder, imix.data.Data("d", labeled, labeled), torch.device("cpu")).standardized()
    expected = fit_linear(samples.train[None], samples.labels[None], 3)(samples.test)[0].softmax(1)
    assert imix.predict(tuned, labeled).probabilities == pytest.approx(expected.numpy(), abs=1e-4)


def test_training_stops_and_returns_to_the_best_epoch_on_held_out_labels(run):
    noise = TensorSource(torch.randn(80, 5), torch.arange(80) % 2)  # nothing to learn: every epoch overfits more
    tuned = imix.finetune(run, noise, epochs=50, patience=3, lr=0.1, device="cpu")
    losses = [record["held_out_loss"] for record in tuned.metrics]
    assert len(losses) < 50 and min(losses[-3:]) > min(losses[:-3], default=float("-inf"))


def test_without_held_out_labels_all_epochs_are_trained(run, labeled):
    assert len(imix.finetune(run, labeled, held_out=0.0, **QUICK_TUNING).metrics) == 3
    rare = TensorSource(labeled.inputs[:9], labeled.labels[:9])  # three labels per class are too few to hold any out
    metrics = imix.finetune(run, rare, **QUICK_TUNING).metrics
    assert len(metrics) == 3 and "held_out_loss" not in metrics[0]


@pytest.mark.parametrize("options", [{"mix": "mixup"}, {"class_weights": True}, {"unlabeled_weight": 0.1}])
def test_every_option_trains_a_useful_classifier(run, labeled, options):
    tuned = imix.finetune(run, labeled, epochs=5, device="cpu", **options)
    assert accuracy(tuned, blobs(200, seed=2, noise=2)) > 0.8


def test_class_weights_raise_the_recall_of_a_rare_class(run):
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(400) % 20 == 0).long()
    source = TensorSource(torch.randn(400, 5, generator=generator) + 0.8 * labels[:, None], labels)
    recalls = []
    for class_weights in (False, True):
        tuned = imix.finetune(run, source, class_weights=class_weights, epochs=30, held_out=0.0, lr=0.01, device="cpu")
        predicted = imix.predict(tuned, source).probabilities.argmax(1)
        recalls.append(predicted[labels.numpy() == 1].mean())
    assert recalls[1] > recalls[0]


def test_samples_without_labels_are_ignored_or_used_for_the_pretraining_loss(run, labeled):
    partly = TensorSource(
        torch.cat([labeled.inputs, blobs(200).inputs]), torch.cat([labeled.labels, -torch.ones(200).long()])
    )
    assert imix.finetune(run, partly, **QUICK_TUNING).config.data.samples == 60
    assert accuracy(imix.finetune(run, partly, unlabeled_weight=0.1, **QUICK_TUNING), labeled) > 0.8


def test_the_same_seed_gives_the_same_classifier(run, labeled):
    first, second, other = (
        imix.finetune(run, labeled, seed=seed, held_out=0.0, **QUICK_TUNING).head.weight for seed in (0, 0, 1)
    )
    assert torch.equal(first, second) and not torch.equal(first, other)


def test_an_improvement_within_the_noise_of_the_held_out_labels_is_not_used(run, labeled, monkeypatch):
    drops = {True: torch.full((12,), 0.1), False: torch.tensor([2.0, -1.8] * 6)}  # the same mean: 0.1
    for clear, drop in drops.items():
        losses = iter([torch.full((12,), 3.0), *[torch.full((12,), 3.0) - drop] * 3])
        monkeypatch.setattr(module._Trainer, "losses_on", lambda self, model, rows, losses=losses: next(losses))
        trainer = module._Trainer(
            run, imix.data.Data("d", labeled), labeled, FineTuning(include_inputs=True), torch.device("cpu")
        )
        assert trainer.fit(torch.arange(48), 3, torch.arange(48, 60))[2] == (1 if clear else 0)


def test_a_fine_tuned_run_is_stored_and_loaded(run, labeled, tmp_path):
    tuned = imix.finetune(run, labeled, out=tmp_path / "tuned", **QUICK_TUNING)
    loaded = imix.load_run(tmp_path / "tuned")
    assert loaded.config == tuned.config and loaded.metrics == tuned.metrics
    expected = imix.predict(tuned, labeled).probabilities
    assert np.array_equal(imix.predict(tmp_path / "tuned", labeled).probabilities, expected)
    assert imix.embed(loaded, labeled).shape == (60, 8)
    with pytest.raises(InputError, match="has a run; pass `overwrite`"):
        imix.finetune(run, labeled, out=tmp_path / "tuned", **QUICK_TUNING)
    imix.finetune(run, labeled, out=tmp_path / "tuned", overwrite=True, **QUICK_TUNING)


def test_nothing_is_written_if_the_data_or_the_folder_is_wrong(run, labeled, tmp_path):
    with pytest.raises(InputError, match="have no labels"):
        imix.finetune(run, labeled.inputs, out=tmp_path / "tuned")
    assert not (tmp_path / "tuned").exists()
    imix.finetune(run, labeled, out=tmp_path / "tuned", **QUICK_TUNING)
    with pytest.raises(InputError, match="is the folder of the pretrained run; change `out`"):
        imix.finetune(tmp_path / "tuned", labeled, out=tmp_path / "tuned", overwrite=True, **QUICK_TUNING)


def test_a_damaged_head_is_rejected_in_one_line(run, labeled, tmp_path):
    imix.finetune(run, labeled, out=tmp_path / "tuned", **QUICK_TUNING)
    (tmp_path / "tuned" / "head.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="is not a head written by imix"):
        imix.load_run(tmp_path / "tuned")


def test_a_table_is_fine_tuned_and_predicted_with_its_class_names(tmp_path):
    rng = np.random.default_rng(0)
    size = rng.normal(size=120)
    frame = polars.DataFrame({"id": np.arange(120), "size": size, "kind": np.where(size > 0, "big", "small")})
    frame.write_csv(tmp_path / "train.csv")
    frame.drop("kind").write_csv(tmp_path / "new.csv")
    settings = imix.DataSettings(label="kind", columns={"id": "drop"})
    run = imix.pretrain(tmp_path / "train.csv", QUICK, settings, progress=False)
    tuned = imix.finetune(run, epochs=20, device="cpu", out=tmp_path / "tuned")
    predictions = imix.predict(tuned, tmp_path / "new.csv", tmp_path / "p.csv", keep=["id"])
    assert (predictions.labels == frame["kind"].to_numpy()).mean() > 0.9
    written = polars.read_csv(tmp_path / "p.csv")
    assert written.columns == ["id", "prediction", "p_big", "p_small"]
    assert written["id"].to_list() == list(range(120))
    assert written["prediction"].to_list() == predictions.labels.tolist()
    with pytest.raises(InputError, match="`keep='prediction'` is the name of an output column"):
        imix.predict(
            tuned,
            frame.rename({"id": "prediction"}),
            tmp_path / "p.csv",
            keep=["prediction"],
            columns={"prediction": "drop"},
        )


def test_a_module_that_was_trained_elsewhere_can_be_fine_tuned():
    images = TensorSource(torch.rand(60, 1, 8, 8), torch.arange(60) % 2)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 8))
    tuned = imix.finetune(encoder, images, **QUICK_TUNING)
    assert not tuned.config.fine_tuning.include_inputs
    assert imix.predict(tuned, images).probabilities.shape == (60, 2)


def test_the_classifier_is_a_module_from_raw_inputs_to_scores(run, labeled):
    tuned = imix.finetune(run, labeled, **QUICK_TUNING)
    scores = Classifier(tuned.encoder, tuned.head, True)(labeled.inputs)
    assert scores.softmax(1).detach().numpy() == pytest.approx(imix.predict(tuned, labeled).probabilities, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch": 3}, r"unknown option 'epoch' \(did you mean 'epochs'\?\)"),
        ({"lr": 0.0}, "`lr` must be above 0; got 0.0"),
        ({"held_out": 1.0}, "`held_out` must be at least 0 and less than 1"),
        ({"mix": "cutmix"}, "unknown `mix` 'cutmix'; choose from none, mixup"),
        ({"weight_decay": -1.0}, "`weight_decay` must be at least 0"),
    ],
)
def test_invalid_options_are_rejected_by_name(run, labeled, options, message):
    with pytest.raises(InputError, match=message):
        imix.finetune(run, labeled, **options)


def test_data_that_cannot_be_learned_from_is_rejected(run, labeled):
    with pytest.raises(InputError, match="have no labels"):
        imix.finetune(run, labeled.inputs)
    with pytest.raises(InputError, match="a classifier needs at least two"):
        imix.finetune(run, TensorSource(labeled.inputs, torch.zeros(60).long()))
    with pytest.raises(InputError, match="was not fine-tuned"):
        imix.predict(run, labeled)
    with pytest.raises(InputError, match="needs `out`"):
        imix.predict(imix.finetune(run, labeled, **QUICK_TUNING), labeled, keep=["id"])
    supervised = imix.pretrain(labeled, QUICK, method="supnpair", progress=False)
    with pytest.raises(InputError, match="`unlabeled_weight` needs a run with a built-in method"):
        imix.finetune(supervised, labeled, unlabeled_weight=1.0, **QUICK_TUNING)


def test_keyword_arguments_match_the_settings():
    from dataclasses import fields

    assert list(module.FineTuningOptions.__annotations__) == [field.name for field in fields(FineTuning)]
