"""torch data sets and loaders."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import imix
from imix import DataSettings, InputError
from imix.data import TensorSource, datasets, load
from imix.data.datasets import DatasetSource
from tests.data.media.helpers import QUICK

X, Y = torch.arange(60.0).view(20, 3), torch.arange(20) % 2


class Items(Dataset):
    """A data set of the given items; an exception among them is raised."""

    def __init__(self, items):
        self.items = list(items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        if isinstance(self.items[i], Exception):
            raise self.items[i]
        return self.items[i]


class Stream(IterableDataset):
    """An iterable data set of the given items, possibly with a length."""

    def __init__(self, items, length=None):
        self.items, self.length = items, length

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        if self.length is None:
            raise TypeError("no length")
        return self.length


class Noise(Dataset):
    """Random items."""

    def __init__(self, draw=torch.rand, n=20):
        self.draw, self.n = draw, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.draw(3)


class LazyFile(Dataset):
    """Rows of a file that is opened when the first item is read."""

    def __init__(self, path):
        self.path, self.file = path, None

    def __len__(self):
        return 20

    def __getitem__(self, i):
        self.file = self.file or self.path.open("rb", buffering=0)
        self.file.seek(12 * i)
        return torch.frombuffer(bytearray(self.file.read(12)), dtype=torch.float32)


@pytest.fixture
def streamed(monkeypatch):
    """Map-style data sets are read whenever items are needed."""
    monkeypatch.setattr(datasets, "MAX_BYTES_IN_MEMORY", 0)


@pytest.mark.parametrize(
    ("items", "labels"),
    [
        (X, None),
        ([(x,) for x in X], None),
        (zip(X, Y, strict=True), Y),
        (zip(X.numpy(), Y.tolist(), strict=True), Y),
        ([{"x": x, "label": y} for x, y in zip(X.tolist(), Y, strict=True)], Y),
        ([{"x": x, "target": "cat" if y else "ant"} for x, y in zip(X, Y, strict=True)], Y),
        ([(x, None if i == 3 else i % 2) for i, x in enumerate(X)], torch.where(torch.arange(20) == 3, -1, Y)),
    ],
)
def test_items_are_samples_or_samples_with_labels(items, labels):
    items = list(items)
    for data in (Items(items), Stream(items), DataLoader(Items(items), 3)):
        train = load(data).train
        assert torch.equal(train.inputs, X)
        assert (train.labels is None) if labels is None else torch.equal(train.labels, labels)


def test_an_item_may_have_several_fields_and_another_key_for_its_label():
    data = load(Items([{"a": x, "b": x[:1], "kind": "ab"[i % 2]} for i, x in enumerate(X)]), DataSettings(label="kind"))
    assert torch.equal(data.train.inputs["b"], X[:, :1]) and data.class_names == ["a", "b"]
    pairs = load(Items([(x, x[:1], i % 2) for i, x in enumerate(X)]))
    assert torch.equal(pairs.train.inputs[1], X[:, :1]) and torch.equal(pairs.train.labels, Y)
    with pytest.raises(InputError, match="`label='y'` must be a key of the items of the data set"):
        load(Items([{"x": x} for x in X]), DataSettings(label="y"))
    run = imix.pretrain(Items([{"x": x, "kind": i % 2} for i, x in enumerate(X)]), QUICK, label="kind", progress=False)
    assert imix.embed(run, Items([{"x": x} for x in X[:5]])).shape[0] == 5  # without labels


def test_labels_can_be_passed_with_a_data_set_that_has_none():
    assert torch.equal(load(Items(X), labels=Y).train.labels, Y)
    with pytest.raises(InputError, match="either labels or a data set whose items have labels"):
        load(TensorDataset(X, Y), labels=Y)


def test_pillow_images_are_color_images_that_are_augmented_by_default():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 12, 10, 3), np.uint8)
    data = load(Items([(Image.fromarray(image), i % 2) for i, image in enumerate(pixels)]))
    assert np.array_equal(data.train.inputs.numpy(), pixels.transpose(0, 3, 1, 2)) and data.augment == "cifar"
    gray = load(Items([Image.fromarray(image).convert("L") for image in pixels]))
    assert (gray.train.shape, gray.augment) == ((1, 12, 10), "none")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Items([*X[:5], X[0, :2]]), r"item 5 is float32 of shape \(2,\), and item 0 is float32 of shape \(3,\)"),
        (Items([X[0], X[1].byte()]), r"same type and shape; item 1 is uint8 of shape \(3,\), and item 0 is float32"),
        (Items([X[0], {"a": X[0], "b": X[0]}]), r"item 1 is \{a: float32 of shape \(3,\), b: "),
        (Items([*X[:3], OSError("disk error")]), "item 3 of the data set cannot be used: OSError: disk error"),
        (Items([X[0], "text"]), "item 1 of the data set cannot be used: a sample must have numbers; got str"),
        (
            Items([{"x": X[0], "id": "a", "y": 0}]),
            "key 'id': a sample must have numbers; got str; if it is the label, ",
        ),
        (Items([{"x": X[0], "class": 1}]), "key 'class': .*pass `label='class'`, otherwise leave it out"),
        (Items([[X[0], 1]]), r"a list of different things; return \(x, y\) as a tuple"),
        (Items([1.0, 2.0]), "item 0 .* a sample must be an array; got float"),
        (Items([]), "the data set has no items"),
        (Stream([]), "the data set has no items"),
        (Stream(X, length=30), "the iterable data set ended after 20 items; its length is 30"),
        (Stream([*X, X[0, :2]]), "item 20 is float32"),
        (DataLoader(Items(X), collate_fn=list), "with a custom `collate_fn` is not supported"),
        (DataLoader(Items(X), sampler=[1, 2]), "custom sampler .*Subset"),
        (DataLoader(Items(X), batch_sampler=[[0, 1], [2, 3]]), "custom sampler or batch sampler"),
    ],
)
def test_bad_items_are_an_error_that_names_them(data, message):
    with pytest.raises(InputError, match=message):
        load(data)


def test_an_array_with_one_element_is_the_label_of_a_pair():
    data = load(Items([(X[0], np.array([5])), (X[1], torch.tensor([7]))]))
    assert (data.train.labels.tolist(), data.class_names) == ([0, 1], ["5", "7"])


@pytest.mark.subprocess
def test_errors_in_worker_processes_are_one_line():
    with pytest.raises(InputError, match=r"^item 3 of the data set cannot be used: OSError: disk error$"):
        load(DataLoader(Items([*X[:3], OSError("disk error")]), num_workers=1))


def test_a_loader_may_have_its_own_batch_size_and_order(capsys):
    loader = DataLoader(Items(X), batch_sampler=BatchSampler(range(20), 3, False))
    with pytest.raises(InputError, match="custom sampler"):
        load(loader)
    assert torch.equal(load(DataLoader(Subset(Items(X), [4, 2]), 3, shuffle=True)).train.inputs, X[[4, 2]])
    assert "only the data set of the DataLoader is used" in capsys.readouterr().err


def test_streamed_items_equal_items_in_memory(streamed):
    data = load(TensorDataset(X, Y))
    assert isinstance(data.train, DatasetSource) and data.train.shape == (3,) and len(data.train) == 20
    rows = [torch.tensor([3, 0]), torch.tensor([11, 5, 5])]
    for source, before in ((data.train, TensorSource(X, Y)), (data.train.take(Y == 1), TensorSource(X[1::2], Y[1::2]))):
        chosen = [row % len(source) for row in rows]
        for (x, y), (z, w) in zip(source.batches(chosen), before.batches(chosen), strict=True):
            assert torch.equal(x, z) and torch.equal(y, w)


@pytest.mark.parametrize("items", [[(x, None if i == 0 else i % 2) for i, x in enumerate(X)], [(x, None) for x in X]])
def test_the_first_item_may_have_no_label(streamed, items):
    train = load(Items(items)).train
    if items[1][1] is None:
        assert train.labels is None
    else:
        assert train.labels.tolist() == [-1, *Y[1:].tolist()]


@pytest.mark.subprocess
@pytest.mark.parametrize("max_bytes", [0, 1 << 30])
def test_with_workers_a_data_set_opens_its_file_in_the_workers_only(tmp_path, monkeypatch, max_bytes):
    monkeypatch.setattr(datasets, "MAX_BYTES_IN_MEMORY", max_bytes)
    (tmp_path / "x.bin").write_bytes(X.numpy().tobytes())
    dataset = LazyFile(tmp_path / "x.bin")
    train = load(DataLoader(dataset, num_workers=2)).train
    assert torch.cat([x for x, _ in train.batches(torch.arange(20).split(2))]).equal(X)
    assert dataset.file is None, "workers that share the position in a file would read the wrong bytes"


@pytest.mark.slow
@pytest.mark.subprocess
def test_workers_survive_a_signal_to_all_processes_and_end_with_their_parent(tmp_path):
    with _streamed_run(tmp_path / "stopped") as process:
        workers = _children(process.pid)
        for pid in (*workers, process.pid):  # as if the process group got the signal, in this order
            os.kill(pid, signal.SIGTERM)
        assert process.wait(120) == 75, "a checkpoint was written"
    _wait_for_end_of(workers)
    with _streamed_run(tmp_path / "killed") as process:
        workers = _children(process.pid)
        process.kill()
    _wait_for_end_of(workers)


RUN = """
import sys, imix, torch
from imix.data import datasets
from tests.data.test_datasets import Noise
datasets.MAX_BYTES_IN_MEMORY = 0
loader = torch.utils.data.DataLoader(Noise(n=100_000), num_workers=2)
try:
    imix.pretrain(loader, epochs=100, batch_size=10, encoder="mlp:16-16", device="cpu", out=sys.argv[1])
except imix.Interrupted:
    sys.exit(75)
"""


def _streamed_run(out):
    """Start a run with two workers, and wait until it trains."""
    process = subprocess.Popen([sys.executable, "-c", RUN, str(out)], stderr=subprocess.DEVNULL)
    metrics = out / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size and len(_children(process.pid)) == 2):
        assert process.poll() is None, "the run failed"
        time.sleep(0.05)
    return process


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def _wait_for_end_of(pids):
    for _ in range(400):
        if not any(map(_is_running, pids)):
            return
        time.sleep(0.05)
    raise AssertionError(f"still running: {pids}")


def _is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_streamed_data_set_that_changes_its_length_is_an_error(streamed):
    items = Items(X)
    source = load(items).train.to(torch.device("cpu"))
    items.items.pop()
    with pytest.raises(InputError, match="the data set had 20 items at first, and now has 19"):
        list(source.batches([torch.arange(3)]))


def test_an_iterable_that_does_not_fit_in_memory_is_an_error(streamed):
    with pytest.raises(InputError, match="the first 1 items of the iterable data set take more than"):
        load(Stream(X))


def draw_with_numpy(n):
    return np.random.rand(n)  # noqa: NPY002


def draw_with_python(n):
    return [random.random() for _ in range(n)]


@pytest.mark.parametrize("draw", [torch.rand, draw_with_numpy, draw_with_python])
def test_random_items_are_reported_and_the_same_when_a_run_is_resumed(capsys, draw):
    first, second = (load(Noise(draw)).train.inputs for _ in range(2))
    assert torch.equal(first, second) and len(first.unique()) == 60
    assert "item 0 of the data set changes each time it is read; each item is read once" in capsys.readouterr().err


def test_loading_a_data_set_does_not_change_the_random_state():
    def draw():
        return [torch.rand(2).tolist(), draw_with_numpy(2).tolist(), draw_with_python(2)]

    torch.manual_seed(3), np.random.seed(3), random.seed(3)  # noqa: NPY002
    expected = draw()
    torch.manual_seed(3), np.random.seed(3), random.seed(3)  # noqa: NPY002
    load(Noise())
    assert draw() == expected


@pytest.mark.parametrize("max_bytes", [pytest.param(0, marks=pytest.mark.slow), 1 << 30])
def test_runs_on_data_sets_are_evaluated_embedded_and_fine_tuned(monkeypatch, max_bytes):
    monkeypatch.setattr(datasets, "MAX_BYTES_IN_MEMORY", max_bytes)
    data = TensorDataset(torch.cat([X, X + 100]) / 100, Y.repeat(2))
    run = imix.pretrain(data, QUICK, progress=False)
    assert np.array_equal(imix.embed(run, data), imix.embed(run, data.tensors[0]))
    assert imix.evaluate(run, data, "knn").split.test == 8
    tuned = imix.finetune(run, data, epochs=1, device="cpu")
    assert imix.predict(tuned, data).labels.shape == (40,)
