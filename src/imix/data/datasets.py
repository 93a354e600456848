"""torch data sets: items are read into memory once or, if they do not fit, whenever they are needed."""

import random
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
    default_convert,
    get_worker_info,
)

from imix.batch import Batch, concatenate, fields, map_fields
from imix.data.arrays import RawData
from imix.data.source import Source
from imix.errors import InputError, first_line
from imix.output import print_message
from imix.progress import ProgressLine
from imix.runtime.rng import isolated_python_rng, isolated_rng, seed_all
from imix.settings import SMALL_IMAGE_SIZE

MAX_BYTES_IN_MEMORY = 8 << 30  # items that take more are read whenever they are needed
BATCH_SIZE = 64  # items read at a time
LABEL_KEYS = ("label", "labels", "target", "y")  # of items that are dicts, in this order


class Item(NamedTuple):
    """A sample (its number, tensors and label, or an error), or a batch of samples."""

    number: int
    sample: Batch
    label: Any
    has_label: bool = False
    """Whether items have a label, which may be None."""
    is_image: bool = False
    error: str = ""
    cause: Exception | None = None


class _Items(Dataset[Item]):
    """The items of a map-style data set; errors are returned, because worker processes cannot raise them."""

    def __init__(self, dataset: Any, label: str | None) -> None:
        self.dataset, self.label = dataset, label

    def __getitem__(self, i: int) -> Item:
        try:
            return _convert(i, self.dataset[i], self.label)
        except Exception as error:
            return _failed(i, error)


@dataclass(eq=False)
class DatasetSource(Source):
    """Items of a map-style data set that are read whenever they are needed, by `workers` processes."""

    dataset: Any
    label: str | None
    workers: int
    rows: Tensor
    first: Item
    n_items: int
    device: torch.device
    labels: Tensor | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of one sample, or None if a sample has several fields."""
        return tuple(self.first.sample.shape) if isinstance(self.first.sample, Tensor) else None

    def batches(self, rows: Iterable[Tensor]) -> Iterator[tuple[Batch, Tensor | None]]:
        """Yield samples and labels on the device."""
        if len(self.dataset) != self.n_items:
            raise InputError(f"the data set had {self.n_items} items at first, and now has {len(self.dataset)}")
        batch_rows = [each.cpu() for each in rows]
        numbers = [self.rows[each].tolist() for each in batch_rows]
        batches = _read(self.dataset, self.label, self.workers, numbers, self.first)
        for row, batch in zip(batch_rows, batches, strict=True):
            labels = None if self.labels is None else self.labels[row].to(self.device)
            yield map_fields(lambda x: x.to(self.device, non_blocking=True), batch.sample), labels

    def to(self, device: torch.device) -> "DatasetSource":
        """Return the same items, with batches on `device`."""
        return replace(self, device=device)

    def take(self, rows: Tensor) -> "DatasetSource":
        """Return a source of these rows only."""
        return replace(self, rows=self.rows[rows], labels=None if self.labels is None else self.labels[rows])


def read_dataset(data: Any, label: str | None) -> tuple[RawData, DatasetSource | None]:
    """Read the items of a data set. If they do not fit in memory, return a source, and read only the labels.

    Items are x, (x, y) or dicts, whose label has the key `label`.
    """
    dataset, workers = _unwrap(data)
    with isolated_rng(torch.device("cpu")), isolated_python_rng():
        seed_all(0)  # so that random transforms are the same when a run is resumed
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        if isinstance(dataset, IterableDataset):
            print_message(
                "the iterable data set is read into memory once; to resume the run, it must yield the same items again"
            )
            return _as_arrays(list(_iterate(dataset, label))), None
        return _read_map_style(dataset, label, workers)


def _unwrap(data: Any) -> tuple[Any, int]:
    """Return the data set and the number of workers of a loader; a loader that changes the samples is an error."""
    if not isinstance(data, DataLoader):
        return data, 0
    if data.collate_fn not in (default_collate, default_convert):
        raise InputError("a DataLoader with a custom `collate_fn` is not supported; move its code to the Dataset")
    is_iterable = isinstance(data.dataset, IterableDataset)
    batch_sampler, samplers = data.batch_sampler, (SequentialSampler, RandomSampler, DistributedSampler)
    sampler = data.sampler if batch_sampler is None else getattr(batch_sampler, "sampler", None)
    if not is_iterable and not (type(batch_sampler) in (BatchSampler, type(None)) and isinstance(sampler, samplers)):
        raise InputError(
            "a DataLoader with a custom sampler or batch sampler is not supported; to select samples, pass a "
            "torch.utils.data.Subset"
        )
    workers = 0 if is_iterable else data.num_workers
    used = f"only the data set and the {workers} worker processes of the DataLoader are used"
    print_message(used if workers else "only the data set of the DataLoader is used")
    return data.dataset, workers


def _read_map_style(dataset: Any, label: str | None, workers: int) -> tuple[RawData, DatasetSource | None]:
    if not hasattr(dataset, "__len__"):
        raise InputError(f"the data set ({type(dataset).__name__}) needs a length: define __len__")
    n = len(dataset)
    if n == 0:
        raise InputError("the data set has no items")
    # By a worker, if there are any: a file that the data set opens in this process would be shared by all workers.
    first, again = (_first_item(batch) for batch in _read(dataset, label, min(workers, 1), [[0], [0]]))
    in_memory = n * sum(field.nbytes for field in fields(first.sample)) <= MAX_BYTES_IN_MEMORY
    if not all(map(torch.equal, fields(first.sample), fields(again.sample))):
        effect = "each item is read once" if in_memory else "a resumed run is not identical to an uninterrupted one"
        print_message(
            f"item 0 of the data set changes each time it is read; {effect}. To draw a new view of a sample in each "
            "step, pass the random transforms as `augment`"
        )
    batches: list[Item] = []
    if in_memory or first.has_label:
        progress = ProgressLine("reading the data set", n, "items")
        numbers = [list(range(n))[i : i + BATCH_SIZE] for i in range(0, n, BATCH_SIZE)]
        for batch in _read(dataset, label, workers, numbers, first):
            batches.append(batch if in_memory else batch._replace(sample=None))
            progress(min(n, BATCH_SIZE * len(batches)))
    if in_memory:
        return _as_arrays(batches), None
    source = DatasetSource(dataset, label, workers, torch.arange(n), first, n, torch.device("cpu"))
    return RawData(None, _labels(batches), augment=_augment(first)), source


def _read(
    dataset: Any, label: str | None, workers: int, rows: Sequence[list[int]], first: Item | None = None
) -> Iterator[Item]:
    """Yield batches of the items with these numbers, which must be like the first item.

    Workers are seeded by the numbers of the first batch, so that random items differ from epoch to epoch.
    """
    loader: Any = DataLoader(
        _Items(dataset, label),
        batch_sampler=rows,
        num_workers=workers,
        collate_fn=_collate,
        worker_init_fn=_leave_signals_to_parent,
        generator=torch.Generator().manual_seed(crc32(repr(rows[:1]).encode())),
    )
    for batch in loader:
        _require_usable(batch if batch.error else _first_item(batch), first)
        yield batch


def _leave_signals_to_parent(worker: int) -> None:
    """Let a worker survive a signal to all processes of a run, so that the parent can write its checkpoint.

    Workers end when the parent ends. The second SIGTERM ends a worker: if it hangs, the parent sends two.
    """
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    signal.siginterrupt(signal.SIGTERM, False)


def _first_item(batch: Item) -> Item:
    return batch._replace(sample=map_fields(lambda x: x[0], batch.sample), label=batch.label[0])


def _collate(items: Sequence[Item]) -> Item:
    """Return a batch, or its first error."""
    try:
        checked = [_require_usable(item, items[0]) for item in items]
        stacked = map_fields(lambda *parts: torch.stack(parts), *(item.sample for item in checked))
        return items[0]._replace(sample=stacked, label=[item.label for item in items])
    except InputError as error:
        return items[0]._replace(sample=None, error=str(error), cause=None if get_worker_info() else error)


def _iterate(dataset: Any, label: str | None) -> Iterator[Item]:
    """Yield all items of an iterable in batches; raise InputError if there are too many, or fewer than its length."""
    expected = None
    with suppress(TypeError, NotImplementedError):  # most have no length
        expected = len(dataset)
    progress, number, nbytes = ProgressLine("reading the data set", expected or 0, "items"), 0, 0
    items: list[Item] = []
    iterator, first, is_last = iter(dataset), None, False
    while not is_last:
        try:
            item = _convert(number, next(iterator), label)
        except StopIteration:
            is_last = True
        except Exception as error:
            item = _failed(number, error)
        if not is_last:
            first = first or item
            items.append(_require_usable(item, first))
            number, nbytes = number + 1, nbytes + sum(field.nbytes for field in fields(item.sample))
            progress(number)
        if items and (is_last or len(items) == BATCH_SIZE):
            yield _collate(items)
            items = []
        if nbytes > MAX_BYTES_IN_MEMORY:
            raise InputError(
                f"the first {number} items of the iterable data set take more than {MAX_BYTES_IN_MEMORY >> 30} GB of "
                "memory; pass a map-style Dataset, whose items are read when they are needed"
            )
    if expected is not None and number != expected:
        raise InputError(f"the iterable data set ended after {number} items; its length is {expected}")
    if not number:
        raise InputError("the data set has no items")


def _convert(number: int, item: Any, label: str | None) -> Item:
    """Split an item into sample and label, and convert the sample to tensors."""
    y, has_label = None, False
    if isinstance(item, dict):
        key = next((key for key in (LABEL_KEYS if label is None else [label]) if key in item), None)
        item, y = {name: value for name, value in item.items() if name != key}, item.get(key)
        has_label = key is not None
        item = next(iter(item.values())) if len(item) == 1 else item
    elif isinstance(item, tuple) and len(item) == 1:
        item = item[0]
    elif isinstance(item, tuple) and item and _is_label(item):
        (*inputs, y), has_label = item, True
        item = inputs[0] if len(inputs) == 1 else tuple(inputs)
    y = getattr(y, "item", lambda: y)()  # of a tensor or a NumPy scalar
    return Item(number, _to_tensor(item), y, has_label, hasattr(item, "getbands") and len(item.getbands()) == 3)


def _is_label(item: tuple[Any, ...]) -> bool:
    """Whether the last part of an item is a label: one value or, in a pair, an array with one element."""
    last = item[-1]
    is_single = len(item) == 2 and isinstance(last, np.ndarray | Tensor) and tuple(last.shape) == (1,)
    return is_single or (np.ndim(last) == 0 and not hasattr(last, "getbands"))


def _to_tensor(value: Any) -> Batch:
    """Convert numbers to float32, and keep uint8; Pillow images become (C, H, W)."""
    if isinstance(value, dict):
        return {key: _field_to_tensor(key, each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(_to_tensor(each) for each in value)
    if hasattr(value, "getbands"):
        value = value.convert("RGB") if value.mode in ("P", "CMYK") else value
        pixels = np.array(value)
        value = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    tensor = value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(_numbers(value))
    if tensor.dim() == 0:
        raise InputError(f"a sample must be an array; got {type(value).__name__}")
    return tensor if tensor.dtype == torch.uint8 else tensor.float()


def _field_to_tensor(key: Any, value: Any) -> Batch:
    try:
        return _to_tensor(value)
    except InputError as error:
        raise InputError(
            f"key {key!r}: {error}; if it is the label, pass `label={key!r}`, otherwise leave it out of the items"
        ) from error


def _numbers(value: Any) -> np.ndarray:
    try:
        array = np.array(value)
    except ValueError as error:  # parts of different shapes
        raise InputError(
            "a sample must be an array; got a list of different things; return (x, y) as a tuple"
        ) from error
    if array.dtype.kind not in "biuf":
        raise InputError(f"a sample must have numbers; got {type(value).__name__}")
    return array if array.dtype == np.uint8 else array.astype(np.float32)


def _failed(number: int, error: Exception) -> Item:
    kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
    message = f"item {number} of the data set cannot be used: {kind}{first_line(error)}"
    return Item(number, None, None, error=message, cause=None if get_worker_info() else error)


def _require_usable(item: Item, first: Item | None = None) -> Item:
    """Return an item; raise InputError if it could not be read, or has another type or shape than the first."""
    if item.error:
        raise InputError(item.error) from item.cause
    if first is not None and (now := _describe(item.sample)) != (before := _describe(first.sample)):
        raise InputError(
            f"all items of a data set must have the same type and shape; item {item.number} is {now}, and item "
            f"{first.number} is {before}"
        )
    return item


def _describe(sample: Batch) -> str:
    if isinstance(sample, dict):
        return f"{{{', '.join(f'{key}: {_describe(value)}' for key, value in sample.items())}}}"
    if isinstance(sample, tuple):
        return f"({', '.join(map(_describe, sample))})"
    return f"{str(sample.dtype).removeprefix('torch.')} of shape {tuple(sample.shape)}"


def _as_arrays(batches: Sequence[Item]) -> RawData:
    x = concatenate([batch.sample for batch in batches])
    return RawData(x, _labels(batches), augment=_augment(_first_item(batches[0])))


def _labels(batches: Sequence[Item]) -> list[Any] | None:
    """Return the labels of all items, or None if no item has one."""
    labels = [y for batch in batches for y in batch.label]
    return labels if any(y is not None for y in labels) else None


def _augment(first: Item) -> str:
    """Return the default augmentation: that of color images if the items are Pillow images."""
    if not first.is_image:
        return "none"
    return "cifar" if max(first.sample.shape[1:]) <= SMALL_IMAGE_SIZE else "imagenet"
