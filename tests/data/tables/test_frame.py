"""Frames: every source of a table gives the same rows."""

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from imix import DataSettings, InputError
from imix.data import load
from tests.data.tables.helpers import people


def test_every_source_gives_the_same_rows(people_csv, tmp_path):
    table = pa.table(people())
    parquet.write_table(table, tmp_path / "people.parquet")
    expected = load(people_csv).train.inputs
    frames = (table, pandas.DataFrame(people()), polars.DataFrame(people()), polars.DataFrame(people()).lazy())
    for source in (tmp_path / "people.parquet", *frames):
        assert torch.equal(load(source).train.inputs, expected)


def test_arrays_with_missing_values_are_numeric_tables(tmp_path):
    x = np.arange(40.0).reshape(10, 4)
    x[3, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    for data in (load(x), load(torch.from_numpy(x)), load(tmp_path / "x.npy")):
        assert data.train.shape == (5,)
        assert [column.kind for column in data.table.columns] == ["numeric"] * 4
        assert data.train.inputs[:, 2].tolist() == [float(i == 3) for i in range(10)]


def test_masked_values_of_an_array_are_missing_values():
    x = np.ma.masked_array(np.arange(12.0).reshape(6, 2), mask=[[0, 1]] + [[0, 0]] * 5)
    assert load(x).train.inputs[:, 2].tolist() == [1, 0, 0, 0, 0, 0]


def test_arrays_of_any_byte_order_and_precision_give_the_same_rows():
    x = np.random.default_rng(0).normal(size=(20, 3))
    expected = load(pandas.DataFrame(x)).train.inputs
    assert torch.equal(load(pandas.DataFrame(x.astype(">f8"))).train.inputs, expected)
    x[0, 0] = np.nan
    for array in (x.astype(">f8"), x.astype(np.longdouble)):
        assert torch.equal(load(array).train.inputs, load(x).train.inputs)
    assert load(torch.randn(8, 3).bfloat16()).train.inputs.dtype == torch.float32


def test_the_pandas_index_in_a_parquet_file_is_not_a_column(tmp_path):
    pandas.DataFrame({"v": np.arange(9) * 0.5}).sample(frac=1, random_state=0).to_parquet(tmp_path / "t.parquet")
    assert list(load(tmp_path / "t.parquet").table.kinds) == ["v"]


def test_values_of_unusual_types_are_encoded_or_named_in_the_error():
    unusual = {
        "interval": pandas.cut(np.arange(40.0), 4),
        "mixed": [1, pandas.NA, "x", None] * 10,
        "huge": [2**70, 5, 2**70, 7] * 10,
        "nested": [[1], [2]] * 20,
        "complex": [1j, 2j] * 20,
        "integer": pandas.array([1, None] * 20, dtype="Int64"),
        "period": pandas.period_range("2020-01", periods=40, freq="M"),
    }
    data = load(pandas.DataFrame(unusual | {"v": np.arange(40) * 0.5}))
    assert torch.isfinite(data.train.inputs).all()
    assert {"interval", "mixed", "integer", "v"} <= set(data.table.kinds)
    with pytest.raises(InputError, match="column 'nested' cannot be read as categorical"):
        load(pa.table({"nested": [[1], [2]]}), DataSettings(columns={"nested": "categorical"}))
    with pytest.raises(InputError, match="column 'nested' cannot be read as a label"):
        load(pa.table({"nested": [[1], [2]], "v": [0.5, 1]}), DataSettings(label="nested"))


def test_columns_can_be_named_by_integers(tmp_path):
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(20, 3))).assign(**{"3": [0, 1] * 10})
    data = load(frame, DataSettings(label=3, columns={0: "drop"}))
    assert (list(data.table.kinds), data.train.n_classes) == (["1", "2"], 2)


def test_an_invalid_parquet_file_is_an_error(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match=r"cannot read .*t.parquet as .parquet"):
        load(tmp_path / "t.parquet")


def test_sparse_pandas_columns_are_read_like_dense_ones():
    values = np.random.default_rng(0).normal(size=200) * (np.arange(200) % 3 == 0)
    sparse = pandas.DataFrame({"a": pandas.arrays.SparseArray(values, fill_value=0.0)})
    dense = pandas.DataFrame({"a": values})
    assert torch.equal(load(sparse).train.inputs, load(dense).train.inputs)
