"""Streamed tables: several files that may be larger than memory, fitted in one pass and read in blocks."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from imix.batch import Batch
from imix.data.blocks import BlockCache, block_order
from imix.data.source import Data, Source
from imix.data.tables.encode import encode_labels, ignore_more_columns, use_declared_label
from imix.data.tables.files import TableFiles, check_same_columns
from imix.data.tables.frame import Frame
from imix.data.tables.stream_fit import ColumnStatistics, TypeConflict
from imix.data.tables.table import Table, check_files, column_errors
from imix.data.tables.values import is_text
from imix.errors import InputError, first_line
from imix.progress import ProgressLine
from imix.settings import DataSettings

MAX_WINDOW_BYTES = 512 << 20  # encoded rows that are mixed at a time
WINDOW_BLOCKS = (2, 64)  # minimum and maximum number of blocks that are mixed at a time
READ_AHEAD = 32_768  # rows, or fewer if they take more than `MAX_WINDOW_BYTES`
READERS = 2  # threads


@dataclass(eq=False)
class TableStream(Source):
    """Rows of a table in several files, which are read and encoded in blocks.

    An epoch mixes the rows of `window` blocks at a time. In memory are these blocks, a few more, and those of the next
    `READ_AHEAD` rows. A batch with rows of more blocks than that, in any order, is read a few blocks at a time.
    """

    files: TableFiles
    table: Table
    starts: np.ndarray  # (blocks + 1,), the number of the first row of each block, and the number of rows
    cache: BlockCache[np.ndarray]
    rows: Tensor  # (N,), numbers of the rows in the files
    labels: Tensor | None = None
    in_blocks = True

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """(width,)."""
        return (self.table.width,)

    @property
    def window(self) -> int:
        """Number of blocks that are mixed at a time."""
        return self.cache.capacity - 1

    @property
    def max_in_use(self) -> int:
        """Maximum number of blocks that batches being prepared keep in memory."""
        rows_per_block = int(self.starts[-1]) // (len(self.starts) - 1)
        read_ahead = min(READ_AHEAD, MAX_WINDOW_BYTES // (4 * self.table.width))
        return self.cache.capacity + READERS + read_ahead // rows_per_block

    def epoch_order(self, seed: int, epoch: int, rows: Tensor | None = None) -> Tensor:
        """Return the order of an epoch, in which the rows of a few blocks at a time are mixed."""
        blocks = torch.from_numpy(self._blocks_of(self.rows.numpy()).astype(np.int32))
        return block_order(blocks, self.window, seed, epoch, rows)

    def batches(self, rows: Iterable[Tensor]) -> Iterator[tuple[Batch, Tensor | None]]:
        """Yield encoded rows (B, width) and labels; threads read the blocks in advance."""
        waiting: deque[tuple[Tensor, list[int], dict[int, Future[np.ndarray]]]] = deque()
        in_use = Counter[int]()  # for each block, how many waiting batches need it
        n_waiting, pool = 0, ThreadPoolExecutor(READERS)
        try:
            for batch_rows in rows:
                batch_rows = batch_rows.cpu()
                needed = np.unique(self._blocks_of(self.rows[batch_rows].numpy())).tolist()
                n_waiting += len(batch_rows)
                while waiting and (n_waiting > READ_AHEAD or len(in_use.keys() | needed) > self.max_in_use):
                    n_waiting -= len(waiting[0][0])
                    in_use -= Counter(waiting[0][1])
                    yield self._gather(*waiting.popleft(), pool)
                requested = self.cache.request(needed, pool) if len(needed) <= self.max_in_use else {}
                waiting.append((batch_rows, needed, requested))
                in_use.update(needed)
            while waiting:
                yield self._gather(*waiting.popleft(), pool)
        finally:
            pool.shutdown(cancel_futures=True)

    def _gather(
        self, rows: Tensor, needed: list[int], requested: Mapping[int, Future[np.ndarray]], pool: Executor
    ) -> tuple[Tensor, Tensor | None]:
        """Collect the rows of a batch from the blocks it needs, which were requested unless they are too many."""
        numbers = self.rows[rows].numpy()
        blocks = self._blocks_of(numbers)
        by_block = np.argsort(blocks, kind="stable")
        local = (numbers - self.starts[blocks])[by_block]
        collected = np.empty((len(rows), self.table.width), np.float32)
        starts, ends = (np.searchsorted(blocks[by_block], needed, side) for side in ("left", "right"))
        for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if needed[i] not in requested:
                requested = self.cache.request(needed[i : i + READERS], pool)
            block = requested[needed[i]].result()
            np.take(block, local[start:end], axis=0, out=collected[start:end], mode="clip")
        batch = np.empty_like(collected)
        batch[by_block] = collected
        return torch.from_numpy(batch), None if self.labels is None else self.labels[rows]

    def _blocks_of(self, numbers: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.starts, numbers, side="right") - 1

    def to(self, device: torch.device) -> "TableStream":
        """Return the same rows: they stay in the files."""
        return self

    def take(self, rows: Tensor) -> "TableStream":
        """Return a source of these rows only, which shares the blocks in memory."""
        return replace(self, rows=self.rows[rows], labels=None if self.labels is None else self.labels[rows])

    def read_columns(self, names: Sequence[str]) -> Frame:
        """Read columns of the rows with their original values; those of text files are text."""
        import pyarrow as pa

        self.files.read(self.files.blocks[0], {}).check_columns(names)
        tables = [frame.data.select(names) for frame in self.files.frames(dict.fromkeys(names, "categorical"), names)]
        frame = Frame(self.files.name, pa.concat_tables(tables, promote_options="permissive"))
        return frame if self.rows.equal(torch.arange(frame.rows)) else frame.take(self.rows.numpy())

    def __str__(self) -> str:
        sizes = np.diff(self.starts)
        n_kept = min(self.window + 1, len(sizes))
        size = n_kept * int(sizes.max()) * self.table.width * 4
        return (
            f"streams {len(sizes)} blocks of up to {sizes.max():,} rows; up to {n_kept} of them ({size / 1e6:,.0f} MB) "
            "are mixed and kept in memory at a time"
        )


def read_table_files(
    name: str, paths: Sequence[Path], data_settings: DataSettings, table: Table | None, test_paths: Sequence[Path]
) -> Data:
    """Prepare to stream a table in several files, and its test rows if there are test files.

    Without `table`, one pass over the rows fits the encoding of the columns.
    """
    if data_settings.columns.get(data_settings.label or "") == "drop":
        data_settings = replace(data_settings, label=None)
    parts = [TableFiles(name, paths, data_settings)]
    data_settings = use_declared_label(data_settings, parts[0].label, table)
    parts += [TableFiles(str(data_settings.test), test_paths, data_settings)] if test_paths else []
    is_new = table is None
    if table is None:
        table, scans = _fit(parts, data_settings)
    else:
        table = ignore_more_columns(table, data_settings)
        for files in parts:
            table.check_columns(files.read(files.blocks[0], table.kinds))
        scans = [_count_rows(files, table.kinds, data_settings.label) for files in parts]
    label_frames = [frame for scan in scans for frame in scan.labels]
    labels: list[Any] = [None] * len(label_frames)
    class_names: list[str] = []
    if data_settings.label is not None and label_frames:  # rows for an existing table may come without labels
        kind = data_settings.columns.get(data_settings.label)
        labels[:], class_names = encode_labels(
            label_frames,
            data_settings.label,
            kind,
            data_settings.missing_label,
            needed=is_new,
            n_train=len(scans[0].labels),
        )
    sources = []
    for files, scan in zip(parts, scans, strict=True):
        part_labels, labels = labels[: len(scan.labels)], labels[len(scan.labels) :]
        is_labeled = len(part_labels) == len(scan.rows) and part_labels[0] is not None
        sources.append(_build_source(files, table, scan.rows, torch.cat(part_labels) if is_labeled else None))
    return Data(name, sources[0], sources[1] if test_paths else None, class_names, data_settings, table)


def _build_source(files: TableFiles, table: Table, rows: Sequence[int], labels: Tensor | None) -> TableStream:
    def load(number: int) -> np.ndarray:
        frame = files.read(files.blocks[number], table.kinds, list(table.kinds))
        if frame.rows != rows[number]:
            raise InputError(f"{frame.name} has changed: it has {frame.rows:,} rows, and had {rows[number]:,} before")
        with file_errors(frame):
            return table.encode(frame)

    starts = np.concatenate([[0], np.cumsum(rows)])
    min_blocks, max_blocks = WINDOW_BLOCKS
    window = min(max_blocks, max(min_blocks, MAX_WINDOW_BYTES // (max(rows) * table.width * 4)))
    return TableStream(files, table, starts, BlockCache(load, window + 1), torch.arange(int(starts[-1])), labels)


class _Scan(NamedTuple):
    """What is known about a table after a pass over its blocks."""

    rows: list[int]  # of each block
    labels: list[Frame]  # the label column of each block, if there is one

    def add(self, frame: Frame, label: str | None) -> None:
        self.rows.append(frame.rows)
        if label in frame.columns:
            column = frame.column(label)
            column = column.dictionary_encode() if is_text(column.type) else column  # takes less memory
            self.labels.append(replace(frame, data=frame.data.select([]).append_column(label, column)))


def _count_rows(files: TableFiles, kinds: Mapping[str, str], label: str | None) -> _Scan:
    """Count the rows of each block, and read the label column if there is one."""
    if files.schema is not None and label not in files.schema.names:
        return _Scan([files.rows(block) for block in files.blocks], [])
    scan = _Scan([], [])
    progress = ProgressLine("reading", len(files.blocks), "blocks")
    for frame in files.frames(kinds, [str(label)]):
        scan.add(frame, label)
        progress(len(scan.rows))
    return scan


def _fit(parts: Sequence[TableFiles], data_settings: DataSettings) -> tuple[Table, list[_Scan]]:
    """Fit the encoding of the columns to all training rows (and scale them by test rows, if the settings say so)."""
    as_text: set[str] = set()
    while True:  # until the columns of text files are read with types that fit all files
        try:
            scans, statistics = zip(*(_collect(files, data_settings, as_text) for files in parts), strict=True)
            break
        except TypeConflict as conflict:
            as_text.add(str(conflict))
    n_scaling = {"train": 1, "all": len(parts), "none": 0}[data_settings.standardize]
    inferred = {}
    for name, column in statistics[0].items():
        with column_errors(name, "numeric"):
            inferred[name] = column.infer()
    ignored = {name: reason for name, (kind, reason) in inferred.items() if kind == "drop"}
    check_files(parts[0].name, inferred, ignored, data_settings.label)
    used = [name for name in inferred if name not in ignored]
    for files, other in zip(parts[1:], statistics[1:], strict=True):
        check_same_columns(files.name, [name for name in other if name not in ignored], parts[0].name, used)
    columns = []
    for name in used:
        kind = inferred[name][0]
        with column_errors(name, kind):
            for other in statistics[1:]:
                other[name].kind = kind
            columns.append(statistics[0][name].fit([each[name] for each in statistics[:n_scaling]]))
    return Table.build(parts[0].name, columns, ignored), list(scans)


def _collect(
    files: TableFiles, data_settings: DataSettings, as_text: Collection[str]
) -> tuple[_Scan, dict[str, ColumnStatistics]]:
    """Read all blocks once: collect statistics of the columns, and the labels."""
    label, kinds = data_settings.label, data_settings.columns
    scan, statistics = _Scan([], []), dict[str, ColumnStatistics]()
    progress = ProgressLine("fitting", len(files.blocks), "blocks")
    for frame in files.frames({**kinds, **dict.fromkeys(as_text, "categorical")}):
        if not statistics:
            frame.check_columns([*kinds, *([] if label is None else [label])])
            statistics = {name: ColumnStatistics(name, kinds.get(name), frame.decimal_marks) for name in frame.columns}
        for name, column in statistics.items():
            if name == label:
                column.kind, column.reason = "drop", "label"
            with file_errors(frame), column_errors(name, column.kind or "numeric"):
                column.add(frame.column(name))
        scan.add(frame, label)
        progress(len(scan.rows))
    return scan, statistics


@contextmanager
def file_errors(frame: Frame) -> Iterator[None]:
    """Name the file in errors about its values."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{frame.name}: {first_line(error)}") from error
