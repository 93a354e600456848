"""Labels of any type: which values mean "no label", which are different classes, and which are refused."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import imix
from imix import DataSettings, InputError
from imix.data import load

X = np.random.default_rng(0).normal(size=(8, 3))
NESTED = torch.nested.nested_tensor([torch.ones(2)] * 8, layout=torch.jagged)


def labels_of(labels, **options):
    """The class numbers or targets of eight samples with these labels."""
    return load(X, DataSettings(**options), labels=labels).train.labels.tolist()


@pytest.mark.parametrize(
    "labels",
    [
        np.ma.array([5, 5, 7, 7, 9, 9, 9, 5], mask=[0, 0, 0, 0, 1, 1, 1, 0]),
        np.ma.array([5.0, 5, 7, 7, 9, 9, 9, 5], mask=[0, 0, 0, 0, 1, 1, 1, 0]),
        np.ma.array(list("aabbccca"), mask=[0, 0, 0, 0, 1, 1, 1, 0]),
        np.ma.array(list("aabbccca"), mask=[0, 0, 0, 0, 1, 1, 1, 0], dtype=object),
        pd.Series([5, 5, 7, 7, None, None, None, 5], dtype="Int64"),
        pd.array([5, 5, 7, 7, None, None, None, 5], dtype="Float64"),
        pd.Series([0, 0, 1, 1, None, None, None, 0], dtype="boolean"),
        pd.Series(["a", "a", "b", "b", None, None, None, "a"], dtype="string"),
        pd.Series(["a", "a", "b", "b", None, None, None, "a"], dtype="category"),
        pd.Series([5, 5, 7, 7, None, None, None, 5], dtype="int64[pyarrow]"),
        pl.Series([5, 5, 7, 7, None, None, None, 5]),
        pa.chunked_array([[5, 5, 7, 7, None, None], [None, 5]]),
        [5, 5, 7, 7, pd.NA, None, float("nan"), 5],
    ],
    ids=lambda labels: f"{type(labels).__module__} {getattr(labels, 'dtype', '')}",
)
def test_masked_and_null_labels_mean_no_label(labels):
    assert labels_of(labels) == [0, 0, 1, 1, -1, -1, -1, 0]


def test_masked_targets_mean_no_label():
    masked = np.ma.array([0.5, 9.5, 1.5] + [2.5] * 5, mask=[0, 1] + [0] * 6)
    nullable = pd.array([0.5, None, 1.5] + [2.5] * 5, dtype="Float64")
    for labels in (masked, nullable):
        targets = torch.tensor(labels_of(labels))
        assert targets.isnan().tolist() == [False, True] + [False] * 6
        assert targets[[0, 2]].tolist() == [0.5, 1.5]


def test_masked_values_of_rows_are_missing_values():
    data = load(np.ma.array(X, mask=X > 1))
    assert data.table.width > 3


@pytest.mark.parametrize("wrap", [lambda x: {"a": x}, lambda x: (X, x), list, lambda x: x[:, None, :, None]])
def test_masked_values_elsewhere_are_an_error_that_says_what_to_do(wrap):
    with pytest.raises(InputError, match=r"must not have masked values: replace them, as in x\.filled"):
        load(wrap(np.ma.array(X, mask=X > 1)))
    assert len(load(wrap(np.ma.array(X))).train) == 8


def test_masked_records_are_an_error():
    records = np.ma.array([(1.0, 2), (3.0, 4)] * 4, dtype=[("a", float), ("b", int)], mask=[(0, 1), (0, 0)] * 4)
    with pytest.raises(InputError, match="samples must be numbers; got an array of"):
        load(records)


def test_masked_text_is_an_error():
    with pytest.raises(InputError, match="samples must"):
        load(np.ma.array([["a", "b"]] * 8, mask=True))


@pytest.mark.parametrize(
    "values",
    [
        (1e20, 2e20),
        (-1e300, 1e300),
        (2.0**63, 2.0**63 + 2048),
        np.array([2**64 - 2, 2**64 - 1], np.uint64),
        (2**63, 2**63 + 1),
        (-(2**63), -(2**63) + 1),
        (10**30, 10**30 + 1),
        torch.tensor([2**64 - 2, 2**64 - 1], dtype=torch.uint64),
        np.array([float(2**53), 2**53 + 1], object),
    ],
    ids=repr,
)
def test_large_labels_stay_different_classes(tmp_path, values):
    labels = torch.cat([values] * 4) if isinstance(values, torch.Tensor) else np.tile(np.array(values), 4)
    assert labels_of(labels) == [0, 1] * 4
    if np.asarray(labels).dtype != object:
        np.savez(tmp_path / "d.npz", x=X, y=labels, x_test=X[:2], y_test=labels[[1, 0]])
        assert load(tmp_path / "d.npz").test.labels.tolist() == [1, 0]


def test_large_labels_of_mixed_types_stay_different_classes(tmp_path):
    assert labels_of([float(2**53), 2**53 + 1] * 4) == [0, 1] * 4
    assert labels_of(np.array([None, float(2**53), 2**53 + 1, 2**53] * 2, object)) == [-1, 0, 1, 0] * 2
    assert labels_of([float("nan"), 2.0**60, 2**60 + 1, 0] * 2) == [-1, 1, 2, 0] * 2


def test_labels_of_small_types_print_no_warning(recwarn):
    for dtype in (np.float16, np.float32):
        assert labels_of(np.array([1, 3] * 4, dtype)) == [0, 1] * 4
    assert not recwarn.list


def test_test_labels_of_another_type_are_compared_exactly(tmp_path):
    y = np.array([2**64 - 1, 3] * 4, np.uint64)
    np.savez(tmp_path / "d.npz", x=X, y=y, x_test=X[:2], y_test=np.array([3, 3]))
    assert load(tmp_path / "d.npz").test.labels.tolist() == [0, 0]
    np.savez(tmp_path / "d.npz", x=X, y=y, x_test=X[:2], y_test=np.array([3, 2**64 - 2], np.uint64))
    with pytest.raises(InputError, match="not in the training samples"):
        load(tmp_path / "d.npz")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e5m2, torch.uint8, torch.bool])
def test_tensors_of_any_real_type_are_labels(dtype):
    assert labels_of(torch.tensor([0, 1] * 4).to(dtype)) == [0, 1] * 4
    assert labels_of(torch.tensor([0.0, 1.0] * 4, requires_grad=True)) == [0, 1] * 4


REFUSED = {
    "meta": (torch.zeros(8, device="meta"), "got a meta tensor"),
    "nested": (NESTED, "nested tensor: pad it"),
    "sparse": (torch.arange(8).to_sparse(), "got a sparse tensor"),
    "complex tensor": (torch.zeros(8) + 0j, "got a complex tensor"),
    "complex": (np.zeros(8) + 0j, "must be numbers or text; got complex128"),
    "quantized": (torch.quantize_per_tensor(torch.arange(8.0), 1, 0, torch.quint8), "got a quantized tensor"),
    "dicts": ([{}] * 8, "must be numbers or text: unhashable type: 'dict'"),
    "sets": ([{1}, {2}] * 4, "must be numbers or text: unhashable type: 'set'"),
    "tensors": (np.array([torch.ones(2), *range(7)], object), "must be numbers or text: got a tensor"),
    "records": (np.zeros(8, [("a", int)]), "must be numbers or text; got"),
    "ragged": ([[1], [2, 3]] * 4, "must be numbers or text"),
    "too large": ([1e39, 0.5] * 4, "too large for float32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_labels_are_refused(name):
    labels, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        labels_of(labels)


@pytest.mark.parametrize(
    "x", [torch.zeros(8, 3, device="meta"), NESTED, torch.zeros(8, 3) + 0j], ids=["meta", "n", "c"]
)
def test_samples_in_such_tensors_are_refused(x):
    for data in (x, (torch.ones(8, 2), x), {"a": x}):
        with pytest.raises(InputError, match="samples must"):
            load(data)


# --- missing_label ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int64, np.float32, object, str])
def test_missing_label_means_no_label(dtype):
    labels = np.array([-1, 0, 1, 2, -1, 0, 1, 2]).astype(dtype)
    assert labels_of(labels, missing_label=-1) == [-1, 0, 1, 2, -1, 0, 1, 2]
    assert labels_of(labels) == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("kind", ["int", "float", "text", "csv", "parquet"])
def test_missing_label_applies_to_label_columns(tmp_path, kind):
    types = {"float": float, "text": str}
    frame = pd.DataFrame({"a": X[:, 0], "y": np.array([-1, 0, 1, 2] * 2).astype(types.get(kind, int))})
    data = frame if kind in ("int", "float", "text") else tmp_path / f"t.{kind}"
    if kind == "csv":
        frame.to_csv(data, index=False)
    elif kind == "parquet":
        frame.to_parquet(data)
    loaded = load(data, DataSettings(label="y", missing_label="-1"))
    assert loaded.train.labels.tolist() == [-1, 0, 1, 2] * 2
    assert list(loaded.class_names) == ["0", "1", "2"]


@pytest.mark.parametrize("missing_label", [77, float("nan"), "unknown"])
def test_a_note_says_that_missing_label_does_not_occur(missing_label, capsys):
    frame = pd.DataFrame({"a": X[:, 0], "y": [0, 1] * 4})
    labels_of([0, 1] * 4, missing_label=missing_label)
    load(frame, DataSettings(label="y", missing_label=missing_label))
    assert capsys.readouterr().err.count(f"`missing_label='{missing_label}'` is not among the labels") == 2


def test_missing_label_is_one_value():
    with pytest.raises(InputError, match=r"`missing_label` must be a name; got \[0\]"):
        DataSettings(missing_label=[0])


def test_missing_label_applies_to_targets():
    frame = pd.DataFrame({"a": X[:, 0], "y": [-999, 0.5, 1.5, 2.5] * 2})
    targets = load(frame, DataSettings(label="y", missing_label=-999)).train.labels
    assert targets.isnan().tolist() == [True, False, False, False] * 2


def test_a_note_says_that_minus_one_is_a_class(capsys):
    frame = pd.DataFrame({"a": X[:, 0], "y": [-1, 0, 1, 2] * 2})
    for data, options in ((X, {}), (frame, {"label": "y"})):
        labels = None if options else np.array([-1, 0, 1, 2] * 2)
        load(data, DataSettings(**options), labels=labels)
        assert "the label -1 is a class like any other; if it means no label, use `missing_label=-1`" in (
            capsys.readouterr().err
        )
        load(data, DataSettings(**options, missing_label=-1), labels=labels)
        assert not capsys.readouterr().err
    for binary in ([-1, 1] * 4, [-1.5, 0, 1, 2] * 2, list("abcd") * 2):
        labels_of(binary)
        assert not capsys.readouterr().err


def test_missing_label_is_stored_in_the_run_and_used_by_evaluate_and_finetune():
    x, labels = torch.randn(60, 4), np.array([0, 1, -1] * 20)
    options = {"epochs": 1, "batch_size": 16, "encoder": "mlp:8-8", "device": "cpu", "progress": False}
    run = imix.pretrain(x, labels=labels, missing_label=-1, **options)
    result = imix.evaluate(run, x, "knn", labels=labels)
    assert result.split.train + result.split.test == 40
    run = imix.pretrain(x, **options)
    result = imix.evaluate(run, x, "knn", labels=labels, missing_label=-1)
    assert result.split.train + result.split.test == 40
    tuned = imix.finetune(run, x, labels=labels, missing_label=-1, epochs=1, device="cpu")
    assert len(tuned.config.classes) == 2


def test_missing_label_is_refused_where_it_does_not_apply():
    with pytest.raises(InputError, match="`missing_label` only applies to labels of tables, arrays and folders"):
        load("digits", DataSettings(missing_label="3"))
