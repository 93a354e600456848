"""`imix.Embedder`: embeddings as a column of batches, in any process."""

import multiprocessing
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from torch import nn

import imix

FRAME = pd.DataFrame(
    {"id": range(32), "age": [20.0, 31, 45, 62] * 8, "city": ["Rome", "Oslo", "Bern", None] * 8, "y": ["a", "b"] * 16}
)
QUICK = {"epochs": 1, "device": "cpu", "progress": False}
BATCHES = {
    "pandas": FRAME,
    "arrow": pa.Table.from_pandas(FRAME),
    "polars": pl.from_pandas(FRAME),
    "lists": FRAME.to_dict("list"),
    "NumPy columns": {name: column.to_numpy() for name, column in FRAME.items()},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "table"
    imix.pretrain(FRAME, label="y", columns={"id": "drop"}, encoder="mlp:8-8", out=path, **QUICK)
    return path


def stack(column):
    return np.stack(column.to_pylist() if isinstance(column, pa.ChunkedArray) else list(column))


@pytest.mark.parametrize("kind", BATCHES)
def test_batches_get_the_features_as_a_column(kind, folder):
    batch = imix.Embedder(folder)(BATCHES[kind])
    assert type(batch) is type(BATCHES[kind])
    names = getattr(batch, "column_names", None) or list(getattr(batch, "columns", batch))
    assert names == ["id", "age", "city", "y", "embedding"]
    np.testing.assert_allclose(stack(batch["embedding"]), imix.embed(folder, FRAME), atol=1e-6)


@pytest.mark.parametrize("kind", ["pandas", "arrow", "NumPy columns"])
def test_batches_without_rows(kind, folder):
    empty = BATCHES[kind][:0] if kind != "NumPy columns" else {name: x[:0] for name, x in BATCHES[kind].items()}
    assert len(imix.Embedder(folder)(empty)["embedding"]) == 0


def test_the_index_of_pandas_is_kept(folder):
    batch = imix.Embedder(folder)(FRAME[5:9])
    assert list(batch.index) == [5, 6, 7, 8]
    np.testing.assert_allclose(stack(batch["embedding"]), imix.embed(folder, FRAME)[5:9], atol=1e-6)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_arrays_become_embeddings(as_tensor):
    x, encoder = torch.randn(10, 5), nn.Linear(5, 3)
    result = imix.Embedder(encoder)(x if as_tensor else x.numpy())
    assert isinstance(result, torch.Tensor if as_tensor else np.ndarray)
    np.testing.assert_allclose(result, imix.embed(encoder, x), atol=1e-6)


@pytest.mark.parametrize("layout", ["one array", "objects"])
@pytest.mark.parametrize("channels", ["first", "last"])
def test_a_column_of_images(layout, channels, tmp_path):
    images = torch.randint(0, 256, (8, 3, 6, 7), dtype=torch.uint8)
    imix.pretrain(images, out=tmp_path / "run", **QUICK)
    column = images.numpy() if channels == "first" else images.permute(0, 2, 3, 1).numpy()
    batch = {"name": list("abcdefgh"), "image": column if layout == "one array" else list(column)}
    embedded = imix.Embedder(tmp_path / "run", column="image")(batch)["embedding"]
    np.testing.assert_allclose(embedded, imix.embed(tmp_path / "run", images), atol=1e-6)


def test_a_run_in_a_folder_is_pickled_as_its_path(folder):
    embedder = imix.Embedder(imix.load_run(folder))
    before = pickle.dumps(embedder)
    expected = embedder(FRAME)
    assert pickle.dumps(embedder) == before and len(before) < 300
    np.testing.assert_array_equal(stack(pickle.loads(before)(FRAME)["embedding"]), stack(expected["embedding"]))


def test_the_encoder_that_a_run_was_loaded_from_is_used(tmp_path):
    x = torch.randn(32, 5)
    settings = {"encoder": "mlp:8", **QUICK}
    imix.pretrain(x, out=tmp_path / "run", **settings)
    other = imix.pretrain(x, seed=1, out=tmp_path / "other", **settings)
    (tmp_path / "other" / "encoder.safetensors").replace(tmp_path / "run" / "best_encoder.safetensors")
    best = tmp_path / "run" / "best_encoder.safetensors"
    for run in (best, imix.load_run(best)):
        copy = pickle.loads(pickle.dumps(imix.Embedder(run)))
        np.testing.assert_allclose(copy(x), imix.embed(other, x), atol=1e-6)


def test_modules_and_runs_in_memory_are_pickled_with_their_weights():
    x = torch.randn(32, 5)
    for source in (nn.Linear(5, 3), imix.pretrain(x, encoder="mlp:8", **QUICK)):
        copy = pickle.loads(pickle.dumps(imix.Embedder(source)))
        assert torch.equal(copy(x), imix.Embedder(source)(x))


def test_spawned_processes_load_the_run(folder):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        batches = pool.map(imix.Embedder(folder), [FRAME[:16], FRAME[16:]])
    embedded = np.concatenate([stack(batch["embedding"]) for batch in batches])
    np.testing.assert_allclose(embedded, imix.embed(folder, FRAME), atol=1e-6)


def test_a_run_is_loaded_once_per_process_and_again_if_it_is_replaced(tmp_path, monkeypatch):
    loaded = []
    load_run = imix.load_run
    monkeypatch.setattr("imix.probes.embedder.load_run", lambda path: loaded.append(path) or load_run(path))
    x = torch.randn(32, 5)
    for seed in range(2):
        imix.pretrain(x, encoder="mlp:8", seed=seed, out=tmp_path / "run", overwrite=True, **QUICK)
        for _ in range(2):
            features = imix.Embedder(tmp_path / "run")(x)
        np.testing.assert_allclose(features, imix.embed(tmp_path / "run", x), atol=1e-6)
        assert len(loaded) == seed + 1


def test_bad_input_is_named(folder, tmp_path):
    embedder = imix.Embedder(folder)
    with pytest.raises(imix.InputError, match="does not have the columns of the run; missing: 'city'"):
        embedder(FRAME[["age"]])
    with pytest.raises(imix.InputError, match="already has a column 'embedding'"):
        embedder(FRAME.assign(embedding=0))
    with pytest.raises(imix.InputError, match="`column` must be one of the batch's columns, 'a', 'b'; got None"):
        imix.Embedder(nn.Linear(5, 3))({"a": [1], "b": [2]})
    with pytest.raises(imix.InputError, match="the batch cannot be read as a table"):
        embedder({"age": [1, "old"], "city": ["Rome", 3]})
    with pytest.raises(imix.InputError, match="no run folder"):
        imix.Embedder(tmp_path / "nosuch")


def test_columns_of_pandas_may_have_numbers_as_names(tmp_path):
    frame = pd.DataFrame({0: [20.0, 31, 45, 62] * 8, 7: ["Rome", "Oslo"] * 16})
    run = imix.pretrain(frame, encoder="mlp:8-8", **QUICK)
    batch = imix.Embedder(run)(frame)
    np.testing.assert_allclose(stack(batch["embedding"]), imix.embed(run, frame), atol=1e-6)
    images = pd.DataFrame({3: list(np.ones((4, 5), np.float32))})
    assert len(imix.Embedder(nn.Linear(5, 3), column="3")(images)["embedding"]) == 4


def test_a_hugging_face_data_set_gets_a_column(folder):
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    batch = imix.Embedder(folder)(datasets.Dataset.from_pandas(FRAME))
    assert batch.column_names == ["id", "age", "city", "y", "embedding"]
    np.testing.assert_allclose(np.array(batch["embedding"]), imix.embed(folder, FRAME), atol=1e-6)


@pytest.mark.full
def test_hugging_face_map(folder):
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    mapped = datasets.Dataset.from_pandas(FRAME).map(imix.Embedder(folder), batched=True, batch_size=20)
    np.testing.assert_allclose(np.array(mapped["embedding"]), imix.embed(folder, FRAME), atol=1e-6)
    assert mapped["id"] == FRAME.id.to_list()


@pytest.mark.full
def test_ray_map_batches_on_a_folder_of_parquet_files(folder, tmp_path):
    ray = pytest.importorskip("ray", reason="needs the package ray[data]")
    for part in range(2):
        FRAME[16 * part : 16 * part + 16].to_parquet(tmp_path / f"{part}.parquet")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        data = ray.data.read_parquet(str(tmp_path))
        batches = data.map_batches(imix.Embedder, fn_constructor_args=(str(folder),), concurrency=1, batch_size=10)
        embedded = batches.to_pandas().sort_values("id")
    finally:
        ray.shutdown()
    np.testing.assert_allclose(stack(embedded["embedding"]), imix.embed(folder, FRAME), atol=1e-6)
    assert list(embedded["city"].fillna("")) == list(FRAME["city"].fillna(""))
