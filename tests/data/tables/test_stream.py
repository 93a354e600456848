"""Tables in several files: streamed in blocks, with the samples and the encoding of the same table in memory."""

import weakref
from dataclasses import replace

import numpy as np
import pandas
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

import imix
from imix import DataSettings, InputError
from imix.data import load
from imix.data.blocks import BlockCache
from imix.data.tables import stream
from imix.data.tables.stream import TableStream
from imix.run import checkpoint
from tests.data.tables.helpers import QUICK, people

N = 480
TARGET = DataSettings(label="target")
FRAME = pandas.DataFrame(people(N))


@pytest.fixture(params=["parquet", "csv", "csv.gz"])
def folder(request, tmp_path):
    """The table in four files of 120 rows; Parquet files have row groups of 40."""
    return write(tmp_path / "table", request.param)


@pytest.fixture
def parquet_folder(tmp_path):
    return write(tmp_path / "table", "parquet")


def write(folder, suffix, frame=FRAME, size=120):
    folder.mkdir()
    for i in range(0, len(frame), size):
        part = frame[i : i + size]
        if suffix == "parquet":
            part.to_parquet(folder / f"{i:04}.parquet", row_group_size=40)
        else:
            part.to_csv(folder / f"{i:04}.{suffix}", index=False)
    return folder


def in_memory(folder, tmp_path, data_settings=TARGET):
    """The same table, read from one file into memory."""
    suffix = ".parquet" if next(folder.iterdir()).suffix == ".parquet" else ".csv"
    path = tmp_path / f"all{suffix}"
    FRAME.to_parquet(path) if suffix == ".parquet" else FRAME.to_csv(path, index=False)
    return load(path, data_settings)


def all_rows(source):
    return torch.cat([x for x, _ in source.batches(torch.arange(len(source)).split(50))])


def test_samples_labels_and_columns_are_those_of_the_table_in_memory(folder, tmp_path):
    data, expected = load(folder, TARGET), in_memory(folder, tmp_path)
    assert isinstance(data.train, TableStream)
    assert data.table.kinds == expected.table.kinds and data.table.ignored == expected.table.ignored
    assert data.train.labels.equal(expected.train.labels)
    assert data.class_names == expected.class_names
    torch.testing.assert_close(all_rows(data.train), expected.train.inputs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("pattern", ["*.parquet", "0{000..120}.parquet", "{0000,0120}.parquet"])
def test_files_are_named_by_a_pattern(parquet_folder, pattern):
    if ".." in pattern:
        with pytest.raises(InputError, match="which is not a file"):
            load(parquet_folder / pattern)
    else:
        assert len(load(str(parquet_folder / pattern)).train) == (480 if "*" in pattern else 240)


@pytest.mark.parametrize("standardize", ["train", "all", "none"])
def test_columns_are_standardized_as_in_memory(parquet_folder, tmp_path, standardize):
    other = write(tmp_path / "test", "parquet", pandas.DataFrame(people(160, seed=5)))
    other_file = tmp_path / "test.parquet"
    pandas.DataFrame(people(160, seed=5)).to_parquet(other_file)
    settings = DataSettings(label="target", standardize=standardize)
    data = load(parquet_folder, replace(settings, test=str(other)))
    expected = in_memory(parquet_folder, tmp_path, replace(settings, test=str(other_file)))
    torch.testing.assert_close(all_rows(data.train), expected.train.inputs, rtol=0, atol=1e-6)
    torch.testing.assert_close(all_rows(data.test), expected.test.inputs, rtol=0, atol=1e-6)
    assert data.test.labels.equal(expected.test.labels)


def test_types_of_text_files_fit_all_files(tmp_path):
    frames = ["a,b,c\n1,2,\n3,4,5\n", "a,b,c\n1.5,x,6\n2,5,7\n", "a,b,c\n,,8.5\n2,y,9\n"]
    (tmp_path / "table").mkdir()
    for i, text in enumerate(frames):
        (tmp_path / "table" / f"{i}.csv").write_text(text)
    (tmp_path / "all.csv").write_text(frames[0] + "".join(text.split("\n", 1)[1] for text in frames[1:]))
    data, expected = load(tmp_path / "table"), load(tmp_path / "all.csv")
    assert data.table.kinds == expected.table.kinds == {"a": "numeric", "c": "numeric", "b": "categorical"}
    torch.testing.assert_close(all_rows(data.train), expected.train.inputs)


def test_large_integers_in_one_text_file_and_fractions_in_another(tmp_path):
    for i, value in enumerate([2**53 + 1, 1.5, 2**60 + 1]):
        (tmp_path / f"{i}.csv").write_text(f"a,b\n{value},0.5\n3,1.5\n")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "all.csv").write_text(f"a,b\n{2**53 + 1},0.5\n3,1.5\n1.5,0.5\n3,1.5\n{2**60 + 1},0.5\n3,1.5\n")
    expected = load(tmp_path / "t" / "all.csv").train.inputs
    torch.testing.assert_close(all_rows(load(f"{tmp_path}/*.csv").train), expected)


def test_an_epoch_reads_each_block_once_and_keeps_few_in_memory(parquet_folder, monkeypatch):
    monkeypatch.setattr(stream, "MAX_WINDOW_BYTES", 1)  # the smallest window: two blocks
    monkeypatch.setattr(stream, "READ_AHEAD", 10)
    train = load(parquet_folder).train
    read, most = [], 0
    original = train.cache.load
    train.cache = BlockCache(lambda number: read.append(number) or original(number), train.cache.capacity)
    order = train.epoch_order(0, 0)
    rows = []
    for (x, _), numbers in zip(train.batches(order.split(10)), order.split(10), strict=True):
        most = max(most, len(train.cache.blocks))
        rows.append((numbers, x))
    assert sorted(read) == list(range(12)), "each of the twelve row groups is read once"
    assert most == 3
    assert torch.cat([x for _, x in rows]).equal(all_rows(train)[order])


@pytest.mark.parametrize("batch_size", [7, 480])
def test_rows_in_any_order_keep_few_blocks_in_memory(parquet_folder, monkeypatch, batch_size):
    monkeypatch.setattr(stream, "MAX_WINDOW_BYTES", 1)  # the smallest window: two blocks
    train = load(parquet_folder).train
    expected, original, blocks, n_in_memory = all_rows(train), train.cache.load, [], []

    def load_block(number):
        block = original(number)
        blocks.append(weakref.ref(block))
        n_in_memory.append(sum(each() is not None for each in blocks))
        return block

    train.cache = BlockCache(load_block, train.cache.capacity)
    order = torch.randperm(480, generator=torch.Generator().manual_seed(0))
    assert torch.cat([x for x, _ in train.batches(order.split(batch_size))]).equal(expected[order])
    assert max(n_in_memory) <= 7, "of twelve blocks"


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, stream.MAX_WINDOW_BYTES])
def test_an_interrupted_run_resumes_bit_for_bit(parquet_folder, tmp_path, monkeypatch, window):
    monkeypatch.setattr(stream, "MAX_WINDOW_BYTES", window)
    settings = replace(QUICK, batch_size=50, checkpoint_minutes=0)

    def start(name, **options):
        return imix.pretrain(parquet_folder, settings, TARGET, out=tmp_path / name, progress=False, **options)

    original, calls = checkpoint.save, []

    def save_then_die(path, state):
        original(path, state)
        calls.append(path)
        if len(calls) == 13:  # in the second epoch
            raise KeyboardInterrupt

    uninterrupted = start("uninterrupted")
    monkeypatch.setattr(checkpoint, "save", save_then_die)
    with pytest.raises(KeyboardInterrupt):
        start("killed")
    monkeypatch.setattr(checkpoint, "save", original)
    resumed = start("killed", resume=True)
    assert [record["loss"] for record in resumed.metrics] == [record["loss"] for record in uninterrupted.metrics]
    before, after = (run.encoder.state_dict() for run in (uninterrupted, resumed))
    assert [name for name in before if not before[name].equal(after[name])] == []


def test_each_rank_reads_its_own_blocks(parquet_folder, monkeypatch):
    from imix.train import setup
    from imix.train.setup import build_setup

    monkeypatch.setattr(stream, "MAX_WINDOW_BYTES", 1)
    train = build_setup(load(parquet_folder), replace(QUICK, batch_size=16))
    monkeypatch.setattr(setup, "world_size", lambda: 2)
    halves = train.rows(0).chunk(2, 1)
    blocks = [set((half // 40).flatten().tolist()) for half in halves]
    assert len(torch.cat(halves).unique()) == 480
    assert len(blocks[0] & blocks[1]) <= 3 and len(blocks[0] | blocks[1]) == 12


@pytest.mark.slow
def test_everything_works_on_a_streamed_table(folder, tmp_path, capsys):
    run = imix.pretrain(folder, QUICK, TARGET, out=tmp_path / "run")
    assert "streams" in capsys.readouterr().err
    vectors = imix.embed(run, folder, tmp_path / "z.parquet", keep=["name"])
    assert vectors.shape == (480, 2)
    written = pandas.read_parquet(tmp_path / "z.parquet")
    assert written["name"].tolist() == FRAME["name"].tolist() and written["label"].tolist() == FRAME["target"].tolist()
    assert imix.embed(run, FRAME, columns={"target": "drop"}) == pytest.approx(vectors, abs=1e-4)
    assert imix.evaluate(run, protocol="knn").split.train == 384
    assert imix.evaluate(run, protocol="knn", group="rooms").split.by == "group"
    tuned = imix.finetune(run, epochs=1, device="cpu")
    assert imix.predict(tuned, folder).labels.shape == (480,)


def test_a_fraction_of_the_rows_is_streamed(parquet_folder):
    train = load(parquet_folder, replace(TARGET, fraction=0.25)).train
    assert len(train) == 120
    assert train.epoch_order(0, 0).sort().values.equal(torch.arange(120))
    assert all_rows(train).equal(all_rows(load(parquet_folder, TARGET).train)[train.rows])


def test_kept_columns_have_the_rows_of_a_fraction_and_of_the_test_files(parquet_folder, tmp_path):
    test = write(tmp_path / "test", "parquet", FRAME[:30])
    run = imix.pretrain(parquet_folder, QUICK, TARGET, progress=False)
    data = load(parquet_folder, replace(TARGET, fraction=0.25, test=str(test)))
    imix.embed(run, data, tmp_path / "z.parquet", keep=["name"])
    names = [*FRAME["name"].to_numpy()[data.train.rows], *FRAME["name"][:30]]
    assert pandas.read_parquet(tmp_path / "z.parquet")["name"].tolist() == names


def test_a_column_to_keep_must_exist(folder):
    with pytest.raises(InputError, match=r"has no column 'nope'; its columns are"):
        load(folder).train.read_columns(["nope"])


def test_rows_without_labels_are_embedded(parquet_folder, tmp_path):
    run = imix.pretrain(parquet_folder, QUICK, TARGET, progress=False)
    unlabeled = write(tmp_path / "unlabeled", "csv", FRAME.drop(columns="target"))
    assert imix.embed(run, unlabeled).shape == (480, 2)
    with pytest.raises(InputError, match="have no labels"):
        imix.evaluate(run, unlabeled, "knn")


# --- errors -----------------------------------------------------------------------------------------------------------


def test_files_with_different_columns_are_named(folder):
    other = FRAME[:9].drop(columns="age").assign(height=1.5)
    last = sorted(folder.iterdir())[-1]
    other.to_parquet(last) if last.suffix == ".parquet" else other.to_csv(last, index=False)
    with pytest.raises(
        InputError, match=rf"{last.name} does not have the columns of .*; missing: 'age'; additional: 'he"
    ):
        load(folder)


def test_test_files_need_the_columns_of_the_training_files(folder, tmp_path):
    suffix = next(folder.iterdir()).name.split(".", 1)[1]
    for change, problem in (({"age": None}, "missing: 'age'"), ({"height": 1.5}, "additional: 'height'")):
        frame = FRAME[:30].assign(**change).dropna(axis=1, how="all")
        test = write(tmp_path / problem.split(":")[0], suffix, frame)
        with pytest.raises(InputError, match=rf"{test} does not have the columns of {folder}; {problem}$"):
            load(folder, replace(TARGET, test=str(test)))


def test_a_file_with_another_type_is_named(parquet_folder):
    FRAME[:9].assign(age="old").to_parquet(parquet_folder / "0360.parquet")
    with pytest.raises(InputError, match=r"0360\.parquet has other types than .*0000\.parquet: .*age.*double vs"):
        load(parquet_folder)


@pytest.mark.parametrize("damage", [b"", b"PAR1 not parquet PAR1"])
def test_a_damaged_file_is_named_and_nothing_is_written(parquet_folder, tmp_path, damage):
    (parquet_folder / "0240.parquet").write_bytes(damage)
    with pytest.raises(InputError, match=r"cannot read .*0240\.parquet as \.parquet"):
        imix.pretrain(parquet_folder, QUICK, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_file_that_changes_during_a_run_is_named(parquet_folder):
    train = load(parquet_folder).train
    FRAME[:30].to_parquet(parquet_folder / "0120.parquet")
    with pytest.raises(InputError, match=r"0120\.parquet"):
        all_rows(train)


def test_a_text_file_with_fewer_rows_than_before_is_named(tmp_path):
    folder = write(tmp_path / "table", "csv")
    train = load(folder).train
    FRAME[:30].to_csv(folder / "0120.csv", index=False)
    with pytest.raises(InputError, match=r"0120\.csv has changed: it has 30 rows, and had 120 before"):
        all_rows(train)


def test_a_value_that_cannot_be_used_is_named_with_its_file(parquet_folder):
    FRAME[:30].assign(income=np.inf).to_parquet(parquet_folder / "0120.parquet")
    with pytest.raises(InputError, match=r"0120\.parquet: column 'income' .*30 infinite values, the first in row 0"):
        load(parquet_folder)


def test_unknown_columns_and_labels_are_refused(folder):
    with pytest.raises(InputError, match="has no column 'agee' "):
        load(folder, DataSettings(columns={"agee": "drop"}))
    with pytest.raises(InputError, match="has no column 'targett'"):
        load(folder, DataSettings(label="targett"))
    with pytest.raises(
        InputError, match=r"`image_size` only applies to image files; .* is a table in several .* files"
    ):
        load(folder, DataSettings(image_size=32))


def test_empty_row_groups_are_skipped_and_a_table_without_rows_is_refused(tmp_path):
    (tmp_path / "t").mkdir()
    parquet.write_table(pa.table({"x": pa.array([], pa.float64())}), tmp_path / "t" / "a.parquet")
    with pytest.raises(InputError, match="has no rows"):
        load(tmp_path / "t")
    parquet.write_table(pa.table({"x": [1.5, 2.5, 4.0]}), tmp_path / "t" / "b.parquet")
    assert len(load(tmp_path / "t").train) == 3


def test_files_of_several_types_are_refused(parquet_folder):
    (parquet_folder / "notes.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"has files of several types, 0000\.parquet and notes\.csv"):
        load(parquet_folder)
