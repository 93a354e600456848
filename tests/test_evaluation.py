"""Protocols against plain versions of themselves, the untouched encoder, run folders and vectors."""

import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import polars
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import imix
from imix import InputError, Settings
from imix.data import Data, Tensors
from imix.errors import StorageError
from imix.evaluation import KNN, Linear, PInv
from imix.evaluation import features as features_of
from imix.evaluation.features import CHUNK, Encoded
from imix.evaluation.held_out import divided, with_test
from imix.evaluation.knn import knn
from imix.evaluation.linear import Classifiers, linear
from imix.evaluation.pinv import pinv
from imix.files import read_lines

CPU = torch.device("cpu")
QUICK = Settings(epochs=1, batch_size=64, encoder="mlp:16-32", device="cpu")


def blobs(n, seed=0, classes=3, width=5, noise=1.0):
    generator = torch.Generator().manual_seed(seed)
    centres = 3 * torch.randn(classes, width, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(n) % classes
    return Tensors(centres[labels] + noise * torch.randn(n, width, generator=generator), labels)


def encoded(source, encoder=None):
    return Encoded(encoder or nn.Identity(), source, CPU)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return imix.pretrain("digits", QUICK, out=tmp_path_factory.mktemp("runs") / "digits", progress=False)


def test_all_rates_in_one_pass_equal_one_torch_run_per_rate():
    source = blobs(100)
    protocol = Linear(rates=(0.1, 1.0, 3.0), epochs=6, batch_size=32, milestones=(3, 5))
    classifiers = Classifiers(3, protocol)
    for epoch in range(protocol.epochs):
        classifiers.learn(source.inputs, source.labels, epoch)
    weight, bias = classifiers.weight, classifiers.bias
    for r, rate in enumerate(protocol.rates):
        generator = torch.Generator().manual_seed(protocol.seed)
        classifier = nn.Linear(5, 3)
        classifier.weight.data = (0.01 * torch.randn(5, 1, 3, generator=generator))[:, 0].T.contiguous()
        classifier.bias.data.zero_()
        optimizer = torch.optim.SGD(classifier.parameters(), lr=rate, momentum=0.9)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, protocol.milestones, 0.2)
        for _ in range(protocol.epochs):
            for rows in torch.randperm(100, generator=generator).split(32):
                optimizer.zero_grad()
                F.cross_entropy(classifier(source.inputs[rows]), source.labels[rows]).backward()
                optimizer.step()
            schedule.step()
        torch.testing.assert_close(weight[:, r].T, classifier.weight.data, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(bias[r], classifier.bias.data, rtol=1e-3, atol=1e-4)


def test_a_share_of_each_class_is_held_out_of_data_without_a_test_part():
    labels = torch.arange(48) % 3
    run = imix.pretrain(torch.randn(48, 4), QUICK, labels=labels, progress=False)
    data, told = with_test(imix.data.load(torch.randn(48, 4), labels=labels), seed=0)
    assert data.test.labels.bincount().tolist() == [3, 3, 3]
    assert told == {"train": 39, "test": "9 held out of train", "seed": 0}
    assert imix.evaluate(run, torch.randn(48, 4), "knn", labels=labels).details["majority_accuracy"] > 0


def test_the_rate_is_chosen_without_the_test_set():
    train, test = blobs(120, noise=3), blobs(60, seed=1, noise=3)
    found = linear(encoded(train), encoded(test), 3, Linear(epochs=5))
    shuffled = Tensors(test.inputs, test.labels.flip(0))
    again = linear(encoded(train), encoded(shuffled), 3, Linear(epochs=5))
    assert found.lr == again.lr
    assert found.accuracy == found.by_lr[found.lr] <= found.paper_accuracy == max(found.by_lr.values())


def test_held_out_rows_are_a_share_of_each_class_and_never_trained_on():
    labels = torch.arange(300) % 3
    kept, held_out = divided(labels, 0.1, 0)
    assert sorted(kept.tolist() + held_out.tolist()) == list(range(300))
    assert labels[held_out].bincount().tolist() == [10, 10, 10]


def test_a_rate_that_diverges_counts_as_wrong_and_harms_no_other():
    train, test = blobs(90), blobs(30, seed=1)
    found = linear(encoded(train), encoded(test), 3, Linear(rates=(1.0, 1e38), epochs=5))
    alone = linear(encoded(train), encoded(test), 3, Linear(rates=(1.0,), epochs=5))
    assert found.lr == 1.0
    assert found.accuracy == alone.accuracy > 0.8


@pytest.mark.parametrize("share", [0.05, 0.3, 0.4, 0.75])
def test_the_share_that_is_held_out_is_the_one_asked_for(share):
    labels = torch.arange(300) % 3
    _, held_out = divided(labels, share, 0)
    assert labels[held_out].bincount().tolist() == pytest.approx([100 * share] * 3, abs=1)
    assert len(held_out) == round(300 * share)


@pytest.mark.parametrize("n", [1, 9, 10, 1297, 100_003])
def test_by_default_every_tenth_row_by_class_is_held_out(n):
    labels = torch.arange(n) % 7
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    tenth = order[labels[order].argsort(stable=True)][9::10].sort().values
    assert torch.equal(divided(labels, 0.1, 0)[1], tenth if n >= 10 else order[:1])


def test_knn_matches_a_loop():
    train, test = blobs(60, noise=3), blobs(40, seed=1, noise=3)
    protocol = KNN(k=7, temperature=0.1)
    right = 0
    for x, label in zip(test.inputs, test.labels, strict=True):
        similarities = [F.cosine_similarity(x, other, dim=0).item() for other in train.inputs]
        nearest = sorted(range(60), key=lambda i: -similarities[i])[:7]
        votes = [0.0] * 3
        for i in nearest:
            votes[train.labels[i]] += np.exp(similarities[i] / 0.1)
        right += int(np.argmax(votes) == label)
    assert knn(encoded(train), encoded(test), 3, protocol) == right / 40


def test_pinv_is_least_squares_onto_one_hot_labels():
    train, test = blobs(90, noise=3), blobs(60, seed=1, noise=3)
    weight = np.linalg.lstsq(train.inputs.double().numpy(), np.eye(3)[train.labels], rcond=None)[0]
    expected = ((test.inputs.double().numpy() @ weight).argmax(1) == test.labels.numpy()).mean()
    assert pinv(encoded(train), encoded(test), 3) == pytest.approx(expected)


def test_pinv_is_stable_where_features_are_rank_deficient():
    train, test = blobs(90), blobs(60, seed=1)
    repeated = nn.Sequential(nn.Linear(5, 64, bias=False))
    plain, wide = pinv(encoded(train), encoded(test), 3), pinv(encoded(train, repeated), encoded(test, repeated), 3)
    assert plain == wide > 0.9
    assert PInv().cutoff > 0


def state(encoder):
    weights = {name: value.clone() for name, value in encoder.state_dict().items()}
    return weights, [part.training for part in encoder.modules()], [p.requires_grad for p in encoder.parameters()]


@pytest.mark.parametrize("protocol", ["linear", "knn", "pinv", "fed", "embed"])
def test_no_protocol_changes_the_encoder(run, protocol):
    assert any(isinstance(part, nn.BatchNorm1d) for part in run.encoder.modules())  # it would count what it sees
    run.encoder[-1].train()
    before, *modes = state(run.encoder)
    imix.embed(run, "digits") if protocol == "embed" else imix.evaluate(run, protocol=protocol)
    after, *modes_after = state(run.encoder)
    run.encoder.eval()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert modes == modes_after


def test_the_momentum_encoder_is_not_what_is_evaluated():
    run = imix.pretrain("digits", replace(QUICK, method="moco", momentum=0.0, queue=64), progress=False)
    frozen_keys = imix.pretrain("digits", replace(QUICK, method="moco", momentum=1.0, queue=64), progress=False)
    untrained = imix.pretrain("digits", replace(QUICK, method="moco", lr=1e-30, queue=64), progress=False)
    for other in (run, frozen_keys):
        weight = other.encoder.state_dict()["encoder.layers.1.weight"]
        assert not torch.equal(weight, untrained.encoder.state_dict()["encoder.layers.1.weight"])


def test_encoding_in_pieces_is_encoding_at_once():
    source = Tensors(torch.randn(2 * CHUNK + 3, 4))
    encoder = nn.Linear(4, 3)
    torch.testing.assert_close(encoded(source, encoder).features(), encoder(source.inputs).detach())


def test_every_number_comes_with_its_constants(run):
    result = imix.evaluate(run, protocol="knn")
    assert "k 20" in str(result) and "temperature 0.07" in str(result) and "test 500" in str(result)
    linear_result = imix.evaluate(run)
    assert "rates (1, 3, 5, 10, 30, 50, 70)" in str(linear_result) and "the paper's way" in str(linear_result)
    assert read_lines(run.path / "evaluations.jsonl")[-1]["value"] == linear_result.accuracy
    assert imix.Run.load(run.path).evaluations[-1]["constants"]["rates"] == [1, 3, 5, 10, 30, 50, 70]


def test_evaluations_that_differ_leave_different_records(run):
    source = blobs(100)
    own = imix.pretrain(source, QUICK, progress=False)
    for protocol in ("linear", "knn", "pinv", "fed"):
        constants = [imix.evaluate(own, source, protocol, seed=seed).constants for seed in (0, 1)]
        assert [found["seed"] for found in constants] == [0, 1]
    quick = Linear(epochs=1, seed=3)
    found = imix.evaluate(own, source, seed=1, constants=quick).constants
    assert (found["seed"], found["split_seed"]) == (3, 1)
    plain, refitted = (imix.evaluate(run, protocol="knn", standardise=standardise) for standardise in (False, True))
    assert refitted.constants == plain.constants | {"standardised": True}
    assert "seed" not in plain.constants  # nothing was drawn


def test_a_class_may_be_in_the_held_out_part_alone():
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    y = torch.arange(20) % 2
    y[torch.randperm(20, generator=torch.Generator().manual_seed(0))[0]] = 2  # the first row that is held out
    run = imix.pretrain(Tensors(x, y), replace(QUICK, knn_every=1), progress=False)
    for protocol in ("linear", "knn", "pinv"):
        assert imix.evaluate(run, Tensors(x, y), protocol).accuracy <= 0.75
    assert np.shape(imix.evaluate(run, Tensors(x, y)).details["confusion"]) == (3, 3)


def test_a_run_on_a_fraction_is_evaluated_on_all_its_data(tmp_path):
    source = blobs(120)
    np.savez(tmp_path / "d.npz", x=source.inputs, y=source.labels)
    run = imix.pretrain(tmp_path / "d.npz", QUICK, imix.Reading(fraction=0.5), progress=False)
    assert run.config["data"]["samples"] == 60
    assert imix.evaluate(run, protocol="knn").constants["train"] == 96
    assert len(imix.embed(run, tmp_path / "d.npz")) == 120


def test_a_run_knows_its_data_by_every_spelling_of_its_path(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    rows = "".join(f"{i * 0.5},{'ab'[i % 2]}\n" for i in range(40))
    (tmp_path / "train.csv").write_text("x,y\n" + rows)
    (tmp_path / "test.csv").write_text("x,y\n" + rows[: len(rows) // 2].rsplit("\n", 1)[0] + "\n")
    reading = imix.Reading(label="y", test="../here/../test.csv")
    run = imix.pretrain("../train.csv", QUICK, reading, progress=False)
    (tmp_path / "link.csv").symlink_to(tmp_path / "train.csv")
    for data in (None, "../train.csv", tmp_path / "here" / ".." / "train.csv", tmp_path / "train.csv", "../link.csv"):
        assert imix.evaluate(run, data, "knn").constants["train"] == 40


def test_data_without_a_test_part_has_a_fifth_held_out():
    source = blobs(100)
    run = imix.pretrain(source, QUICK, progress=False)
    result = imix.evaluate(run, source, "knn")
    assert result.constants["test"] == "20 held out of train"


def test_evaluation_that_cannot_be_is_refused_by_name(run, tmp_path):
    arrays = imix.pretrain(np.random.default_rng(0).normal(size=(40, 5)), QUICK, progress=False)
    for arguments, message in [
        ((run, None, "lda"), "unknown protocol 'lda'; choose from linear, knn, pinv"),
        ((run, np.ones((9, 1, 8, 8))), "training samples of given have no labels"),
        ((arrays,), "trained on arrays or a frame, which it does not keep; give them again"),
        ((tmp_path / "nothing",), "no run folder"),
        ((tmp_path,), "not a run folder"),
        ((arrays, "digits"), r"trained on samples of shape \(5,\); digits has \(1, 8, 8\)"),
    ]:
        with pytest.raises(InputError, match=message):
            imix.evaluate(*arguments)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (KNN, {"k": 0}, "k must be an int above 0; got 0"),
        (KNN, {"k": 2.5}, "k must be an int above 0; got 2.5"),
        (KNN, {"temperature": 0.0}, "temperature must be above 0; got 0.0"),
        (PInv, {"cutoff": -1.0}, "cutoff must be at least 0 and less than 1; got -1.0"),
        (Linear, {"rates": ()}, r"rates must be one or more numbers above 0; got \(\)"),
        (Linear, {"rates": (1, -1)}, r"rates must be one or more numbers above 0; got \(1, -1\)"),
        (Linear, {"epochs": 0}, "epochs must be an int above 0; got 0"),
        (Linear, {"batch_size": 0}, "batch_size must be an int above 0; got 0"),
        (Linear, {"decay": 0.0}, "decay must be above 0; got 0.0"),
        (Linear, {"momentum": 1.0}, "momentum must be at least 0 and less than 1; got 1.0"),
        (Linear, {"held_out": 0}, "held_out must be above 0 and less than 1; got 0"),
        (Linear, {"held_out": 1.0}, "held_out must be above 0 and less than 1; got 1.0"),
    ],
)
def test_constants_that_cannot_be_are_refused_by_name(kind, given, message):
    with pytest.raises(InputError, match=message):
        kind(**given)


def test_constants_of_another_protocol_are_refused(run, tmp_path):
    for protocol, message in [
        ("linear", r"linear takes Linear\(...\) as its constants; got KNN\(k=20"),
        ("pinv", r"pinv takes PInv\(...\) as its constants"),
        ("fed", "fed takes no constants"),
    ]:
        with pytest.raises(InputError, match=message):
            imix.evaluate(run, protocol=protocol, constants=KNN())
    with pytest.raises(InputError, match=r"detection takes Detection\(...\) as its constants"):
        imix.evaluate(run, "voc", "detection", data_dir=str(tmp_path), constants=KNN())


def test_no_protocol_depends_on_how_many_votes_are_held_at_a_time(monkeypatch):
    train, test = encoded(blobs(90, noise=3)), encoded(blobs(60, seed=1, noise=3))
    protocols = knn, pinv, lambda *given: linear(*given, Linear(epochs=3))
    whole = [protocol(train, test, 3) for protocol in protocols]
    most = []
    logits = Classifiers.logits
    monkeypatch.setattr(Classifiers, "logits", lambda self, x: most.append(len(x)) or logits(self, x))
    monkeypatch.setattr(features_of, "MOST_VOTES", 7 * 3 * 8)
    assert [protocol(train, test, 3) for protocol in protocols] == whole
    tested = most[2 * 3 :]  # after two classifiers' batches, one in each of three epochs
    assert max(tested) == 8 and sum(tested) == 9 + 60 + 90


# --- run folders and encoders ----------------------------------------------------------------------------------------


def test_a_run_folder_holds_all_that_is_needed(run):
    names = {path.name for path in run.path.iterdir()}
    assert {"config.json", "metrics.jsonl", "checkpoint.pt", "encoder.safetensors"} <= names
    config = json.loads((run.path / "config.json").read_text())
    assert config["settings"]["method"] == "npair"
    reading = asdict(imix.Reading())
    expected = {"name": "digits", "samples": 1297, "shape": [1, 8, 8], "reading": reading, "table": None}
    assert len(config["data"].pop("fingerprint")) == 16
    assert config["data"] == expected


def test_load_encoder_gives_the_same_features_from_a_folder_or_the_file_alone(run, tmp_path):
    x = torch.rand(7, 1, 8, 8)
    expected = run.encoder(x).detach()
    copied = tmp_path / "anything.safetensors"
    copied.write_bytes((run.path / "encoder.safetensors").read_bytes())
    for path in (run.path, str(run.path), copied):
        encoder = imix.load_encoder(path)
        assert not encoder.training
        assert torch.equal(encoder(x), expected)


def test_the_plain_backbone_comes_out_of_a_run(run):
    backbone = imix.load_encoder(run.path)[-1]
    assert isinstance(backbone, imix.encoders.MLP)
    imix.NPair(backbone)  # and goes into another method


def test_an_encoder_of_ones_own_is_filled_when_given(tmp_path):
    def mine():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 6))

    run = imix.pretrain("digits", QUICK, encoder=mine(), out=tmp_path / "run", progress=False)
    with pytest.raises(InputError, match="encoder of your own"):
        imix.load_encoder(tmp_path / "run")
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(imix.load_encoder(tmp_path / "run", mine())(x), run.encoder(x))
    with pytest.raises(InputError, match="do not fit"):
        imix.load_encoder(tmp_path / "run", nn.Sequential(nn.Flatten(), nn.Linear(64, 7)))


def test_broken_or_foreign_encoder_files_are_refused(tmp_path):
    from safetensors.torch import save_file

    (tmp_path / "cut.safetensors").write_bytes(b"\x00\x01")
    save_file({"w": torch.ones(1)}, tmp_path / "foreign.safetensors")
    for name in ("cut", "foreign"):
        with pytest.raises(InputError, match="not an encoder written by imix"):
            imix.load_encoder(tmp_path / f"{name}.safetensors")
    with pytest.raises(InputError, match="no encoder at"):
        imix.load_encoder(tmp_path / "nothing.safetensors")


# --- vectors ---------------------------------------------------------------------------------------------------------


def test_vectors_are_the_encoders_in_every_format(run, tmp_path):
    digits = imix.data.load("digits")
    expected = run.encoder(torch.cat([digits.train.inputs, digits.test.inputs])).detach().numpy()
    for name in ("z.npy", "z.parquet", "z.csv"):
        vectors = imix.embed(run.path, "digits", tmp_path / name)
        np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5)
    assert np.array_equal(np.load(tmp_path / "z.npy"), vectors)
    for frame in (polars.read_parquet(tmp_path / "z.parquet"), polars.read_csv(tmp_path / "z.csv")):
        np.testing.assert_allclose(frame.select(polars.col("^f\\d+$")).to_numpy(), vectors, rtol=1e-4, atol=1e-5)
        assert frame["split"].to_list() == ["train"] * 1297 + ["test"] * 500
        assert frame["label"].cast(int).to_list() == torch.cat([digits.train.labels, digits.test.labels]).tolist()


def test_inputs_are_evaluated_beside_the_features(run):
    digits = imix.data.load("digits")
    found = imix.evaluate(run, "digits", "knn", inputs=True)
    pixels = Encoded(nn.Flatten(), Tensors(run.encoder[0](digits.train.inputs), digits.train.labels), CPU)
    asked = Encoded(nn.Flatten(), Tensors(run.encoder[0](digits.test.inputs), digits.test.labels), CPU)
    assert found.value == knn(pixels, asked, 10)
    assert (found.constants["of"], "of" in imix.evaluate(run, "digits", "knn").constants) == ("inputs", False)


def test_results_say_what_the_most_frequent_class_would_get():
    x, y = torch.randn(100, 3), [0] * 70 + [1] * 30
    made = imix.pretrain(x, QUICK, labels=y, progress=False)
    result = imix.evaluate(made, Data("d", Tensors(x, torch.tensor(y)), Tensors(x[50:], torch.tensor(y[50:]))))
    assert result.details["majority_accuracy"] == pytest.approx(0.4)
    assert "always the most frequent class 40.00 %" in str(result)


def test_one_class_is_nothing_to_tell_apart(run):
    with pytest.raises(InputError, match="are of one class, so there is nothing to tell apart"):
        imix.evaluate(run, np.zeros((20, 1, 8, 8)), labels=[0] * 20)


def test_classes_of_a_confusion_are_named(tmp_path):
    frame = polars.DataFrame({"v": np.arange(60) * 0.5, "kind": ["cat", "dog", "fox"] * 20})
    frame.write_csv(tmp_path / "t.csv")
    made = imix.pretrain(tmp_path / "t.csv", QUICK, imix.Reading(label="kind"), progress=False)
    assert imix.evaluate(made).details["classes"] == ["cat", "dog", "fox"]


def test_columns_by_which_rows_are_known_are_kept_beside_vectors(tmp_path):
    ids = [f"{i:04}" for i in range(60)]
    frame = polars.DataFrame({"id": ids, "v": np.arange(60) * 0.5, "kind": ["cat", "dog", "fox"] * 20})
    frame.write_csv(tmp_path / "t.csv")
    made = imix.pretrain(tmp_path / "t.csv", QUICK, imix.Reading(label="kind"), progress=False)
    for data in (str(tmp_path / "t.csv"), frame):
        imix.embed(made, data, tmp_path / "z.parquet", keep=["id"])
        written = polars.read_parquet(tmp_path / "z.parquet")
        assert (written.columns[0], written["id"].to_list(), "split" in written.columns) == ("id", ids, False)
    with pytest.raises(InputError, match="has no column 'ids'"):
        imix.embed(made, frame, tmp_path / "z.csv", keep=["ids"])
    with pytest.raises(InputError, match="is for features that are written to"):
        imix.embed(made, frame, keep="id")
    with pytest.raises(InputError, match="'split' is what embed calls a column of its own"):
        imix.embed(made, frame, tmp_path / "z.csv", keep="split")


def test_kept_columns_of_two_files_are_put_together_or_refused_by_name(tmp_path):
    frame = polars.DataFrame({"id": np.arange(60), "v": np.arange(60) * 0.5, "tags": [[1, 2]] * 60})
    frame.write_parquet(tmp_path / "t.parquet")
    frame.with_columns(polars.col("id").cast(polars.Int16)).write_parquet(tmp_path / "more.parquet")
    reading = imix.Reading(columns={"id": "drop", "tags": "drop"}, test=str(tmp_path / "more.parquet"))
    made = imix.pretrain(tmp_path / "t.parquet", QUICK, reading, out=tmp_path / "run", progress=False)
    imix.embed(made, tmp_path / "t.parquet", tmp_path / "z.parquet", keep=["id", "tags"])
    assert polars.read_parquet(tmp_path / "z.parquet")["id"].to_list() == [*range(60)] * 2
    with pytest.raises(InputError, match=r"column .tags. holds lists"):
        imix.embed(made, tmp_path / "t.parquet", tmp_path / "z.csv", keep=["tags"])
    frame.drop("id").write_parquet(tmp_path / "more.parquet")
    with pytest.raises(InputError, match=r"more\.parquet has no column 'id'"):
        imix.embed(made, tmp_path / "t.parquet", tmp_path / "z.csv", keep=["id"])


def test_what_cannot_apply_is_refused_in_evaluation_too(run):
    with pytest.raises(InputError, match="columns are those of a table; 'digits' is a named set of images"):
        imix.evaluate(run, "digits", columns={"a": "drop"})
    with pytest.raises(InputError, match="inputs=True is for the other protocols"):
        imix.evaluate(run, "voc", "detection", data_dir=".", inputs=True)


def test_a_network_that_was_trained_elsewhere_is_evaluated_alike(run):
    digits = imix.data.load("digits")
    assert imix.evaluate(run.encoder, "digits", "knn").value == imix.evaluate(run, "digits", "knn").value
    assert np.array_equal(imix.embed(run.encoder, "digits"), imix.embed(run, "digits"))
    found = imix.evaluate(nn.Flatten(), digits, "knn", inputs=True)
    assert found.value == imix.evaluate(nn.Flatten(), digits, "knn").value


def test_a_run_is_shown_in_a_line(run):
    assert repr(run).startswith("<Run in ") and "npair + mixup on digits" in repr(run) and len(repr(run)) < 200


def test_vectors_of_unlabelled_arrays(run):
    assert imix.embed(run, np.zeros((3, 1, 8, 8))).shape == (3, 8)


def test_vectors_that_cannot_be_written_are_refused_first(run, tmp_path):
    with pytest.raises(InputError, match=r"\.parquet or \.npy or \.csv"):
        imix.embed(run, "digits", tmp_path / "z.txt")
    with pytest.raises(InputError, match="no folder"):
        imix.embed(run, "digits", tmp_path / "no" / "z.npy")


def test_linear_evaluation_with_views_sees_new_ones_each_epoch_and_tests_on_none():
    images = torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60) % 2
    images[labels == 1, 0] += 1
    seen = []

    def views(x):
        seen.append(x.clone())
        return x + 0.01 * torch.randn_like(x)

    encoder = nn.Flatten()
    train = Encoded(encoder, Tensors(images, labels), CPU, views)
    found = linear(train, Encoded(encoder, Tensors(images, labels), CPU), 2, Linear(epochs=7))
    assert found.accuracy > 0.95
    assert len(seen) == 7
    assert linear(train, train.without_views(), 2, Linear(epochs=7)) == found


def test_images_are_evaluated_with_the_papers_views_if_asked(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (40, 3, 16, 16), dtype=np.uint8)
    run = imix.pretrain(x, Settings(epochs=1, batch_size=20, device="cpu"), progress=False)
    result = imix.evaluate(run, x, labels=np.arange(40) % 2, augment=True)
    assert result.constants["views"] == "shift 4, flip 0.5"
    with pytest.raises(InputError, match="augment=True is for the linear evaluation of images"):
        imix.evaluate(run, x, "knn", labels=np.arange(40) % 2, augment=True)


def test_neighbours_are_asked_along_the_way(capsys):
    source = blobs(100)
    run = imix.pretrain(source, replace(QUICK, epochs=5, knn_every=2))
    assert ["knn" in record for record in run.metrics] == [False, True, False, True, False]
    assert run.metrics[3]["knn"] > 0.6
    assert "kNN" in capsys.readouterr().err
    plain = imix.pretrain(source, replace(QUICK, epochs=5), progress=False)
    for a, b in zip(run.encoder.parameters(), plain.encoder.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(InputError, match="have no labels"):
        imix.pretrain(torch.randn(20, 3), replace(QUICK, knn_every=1), progress=False)


def test_the_last_neighbours_are_those_of_evaluate():
    source = blobs(100)
    run = imix.pretrain(source, replace(QUICK, epochs=4, knn_every=4), progress=False)
    assert run.metrics[-1]["knn"] == imix.evaluate(run, source, "knn").accuracy


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda x: x / 0, "not finite"),
        (lambda x: x[:1], r"of 60 this one gave \(1, 5\)"),
        (lambda x: (x, x), "gave tuple"),
        (lambda x: x[:, None], r"gave \(60, 1, 5\)"),
    ],
)
@pytest.mark.parametrize("protocol", ["linear", "knn", "pinv"])
def test_what_an_encoder_cannot_give_is_refused(give, said, protocol):
    class Odd(torch.nn.Module):
        def forward(self, x):
            return give(x)

    with pytest.raises(InputError, match=said):
        imix.evaluate(Odd(), torch.rand(75, 5), labels=torch.arange(75) % 3, protocol=protocol)


def test_a_learner_is_evaluated_by_its_encoder():
    x, y = torch.rand(75, 5), torch.arange(75) % 3
    learner = imix.NPair(imix.encoders.build("small", (5,)))
    found = imix.evaluate(learner, x, labels=y, protocol="knn")
    assert found.value == imix.evaluate(learner.encoder, x, labels=y, protocol="knn").value
    assert np.array_equal(imix.embed(learner, x), imix.embed(learner.encoder, x))


def test_an_encoder_takes_numbers_of_any_type():
    x = torch.randint(0, 2, (64, 5))
    run = imix.pretrain(x, imix.Settings(epochs=1), progress=False)
    expected = torch.from_numpy(imix.embed(run, x))
    for kind in (torch.int64, torch.float64, torch.bool):
        assert torch.equal(run.encoder(x.to(kind)), expected)


def test_a_result_that_cannot_be_kept_is_not_lost(run, tmp_path):
    moved = imix.Run.load(shutil.copytree(run.path, tmp_path / "moved"))
    (tmp_path / "moved" / "evaluations.jsonl").unlink(missing_ok=True)
    (tmp_path / "moved" / "evaluations.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*; what was found: knn on digits: \d+\.\d\d %"):
        imix.evaluate(moved, protocol="knn")


def test_no_samples_are_held_out_of_what_a_method_saw_with_its_labels(tmp_path, monkeypatch):
    rows, classes = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 2
    polars.DataFrame({**{f"c{i}": rows[:, i] for i in range(4)}, "y": classes, "z": classes}).write_csv(
        tmp_path / "rows.csv"
    )
    reading = imix.Reading(label="y", columns={"z": "drop"})
    supervised = replace(QUICK, method="supnpair")
    of_file = imix.pretrain(str(tmp_path / "rows.csv"), supervised, reading, progress=False)
    of_arrays = imix.pretrain(rows, supervised, labels=classes, progress=False)
    shutil.copy(tmp_path / "rows.csv", tmp_path / "copy.csv")
    monkeypatch.chdir(tmp_path)
    for seen in (
        lambda: imix.evaluate(of_file),
        lambda: imix.evaluate(of_file, "rows.csv"),
        lambda: imix.evaluate(of_file, "copy.csv"),
        lambda: imix.evaluate(of_arrays, rows, labels=classes),
    ):
        with pytest.raises(InputError, match=r"learned from the labels .* give others with test=FILE"):
            seen()
    imix.evaluate(of_file, protocol="fed")
    imix.evaluate(of_file, label="z")
    imix.evaluate(of_arrays, rows[:40], labels=classes[:40])
    imix.evaluate(imix.pretrain(rows, QUICK, labels=classes, progress=False), rows, labels=classes)


def test_load_encoder_of_a_run_says_where_its_encoder_is(run):
    with pytest.raises(InputError, match="a Run has its encoder"):
        imix.load_encoder(run)
