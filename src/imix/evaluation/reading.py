"""Data for a run that is there: read as the run's was."""

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from imix.batch import as_floats
from imix.data import GIVEN, TABLES, Data, read_as_before
from imix.data.frame import Frame, as_frame, is_frame
from imix.data.standardise import Standardise
from imix.data.tabular import read_frames
from imix.data.ways import check_ways
from imix.errors import InputError
from imix.run import Run
from imix.settings import Reading

FAR = 100  # deviations from the mean, where no colour is


def load_for(
    run: Run,
    data: Any,
    labels: Any = None,
    *,
    label: str | None = None,
    columns: Mapping[str, str] | None = None,
    test: str | None = None,
    data_dir: str | None = None,
) -> Data:
    """Data read as the run's was, whole, and but for what is given; refused if the run's encoder cannot take it."""
    if isinstance(data, str) and data == run.config["data"]["name"] == GIVEN:
        raise InputError(
            "the run was trained on arrays or a frame, which it does not keep; give them again as data, with their "
            "labels as imix.data.load(x, labels=y)"
        )
    said = {"label": label, "columns": columns, "test": test, "data_dir": data_dir}
    given: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    if not isinstance(data, Data):
        check_ways(data, Reading(**given))
    if label is not None and run.table is None:
        raise InputError("label names a column of a table, and the run was not trained on one")
    reading = replace(run.reading, fraction=1.0)
    if isinstance(data, Data):
        reading = data.reading  # it was read before
    elif not isinstance(data, str | Path) or not is_called(data, run.config["data"]["name"]):
        reading = replace(reading, test=None, data_dir=None)  # of no meaning for other data
    if labels is not None:
        reading = replace(reading, label=None)  # what is given goes before what is remembered
    reading = replace(reading, **given)
    if label is not None and not columns:  # what was no input may be a label
        reading = replace(reading, columns={k: v for k, v in reading.columns.items() if k != reading.label})
    dataset = read_as_before(data, reading, labels=labels, table=run.table)
    if dataset.table is not None and run.table is None:
        raise InputError(f"the run was trained on arrays without gaps, and {dataset.name} is a table or has gaps")
    shape = run.config["architecture"]["shape"]
    if shape is not None and dataset.train.shape != tuple(shape):
        raise InputError(
            f"the run was trained on samples of shape {tuple(shape)}; {dataset.name} has {dataset.train.shape}"
        )
    _check_unit(run, dataset)
    if label is not None and dataset.train.labels is None:
        frames_of(data, dataset, [label])
        raise InputError(f"column {label!r} is empty")
    return dataset


def _check_unit(run: Run, data: Data) -> None:
    """Refuse images whose colours are in another unit than the run's: 0..255 as floats where they were in 0..1."""
    front = run.encoder[0]
    if not isinstance(front, Standardise) or len(data.train.shape or ()) != 3:
        return
    largest = float(as_floats(data.train.sample(64)).max())
    if largest > float((front.mean + FAR * front.deviation).max()):
        raise InputError(f"{data.name} has values up to {largest:g}, far from the run's; colours are bytes, or in 0..1")


def frames_of(data: Any, dataset: Data, names: Sequence[str]) -> list[Frame]:
    """The table that data was made of, and that of its test samples, with those columns as text; refused without."""
    in_file = isinstance(data, str | Path) and dataset.name.lower().endswith(TABLES)
    if dataset.table is None or not (in_file or is_frame(data)):
        raise InputError(f"columns by name are those of a .csv or .parquet file or a frame; {dataset.name} is none")
    if in_file:
        files = [place for place in (dataset.name, dataset.reading.test) if place is not None]
        as_text = replace(dataset.reading, label=None, test=None, columns=dict.fromkeys(names, "categorical"))
        frames = [read_frames(Path(place), as_text)[0] for place in files]
    else:
        frames = [as_frame(data, "the data")]
    for frame, name in itertools.product(frames, names):
        frame.check(name)
    return frames


def is_called(data: str | Path, name: str) -> bool:
    """Whether data, by its name or any spelling of its path, is what a run calls so."""
    return name != GIVEN and (str(data) == name or os.path.realpath(data) == os.path.realpath(name))
