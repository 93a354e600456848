"""Answers stored in the run folder for the report: one JSON file per command, in the folder `answers`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from imix.errors import InputError, StorageError, first_line
from imix.explore.result import Answer, Card
from imix.explore.samples import ReadOptions, Samples
from imix.files import write_text
from imix.output import print_message
from imix.run import Run
from imix.run.folder import ANSWERS
from imix.typed_json import build

FORMAT_VERSION = 1
OPTIONS = ReadOptions.__optional_keys__ - {"keep", "device"}  # those with which data was loaded


@dataclass(frozen=True)
class StoredAnswer:
    """An answer in the run folder: the data options, and what the report shows."""

    question: str
    data: str
    with_test: bool
    options: dict[str, Any]
    progress: str | None  # of the encoder, as in `Run.progress`
    summary: str
    cards: tuple[Card, ...]
    format: int = FORMAT_VERSION


def deliver(question: str, answer: Answer, samples: Samples, out: "str | Path | None") -> None:
    """Write an answer to `out`, and store it in the run folder for the report if its data has a name or path."""
    if out is not None:
        answer.write(out)
    run, origin = samples.run, samples.origin
    if run is None or run.path is None or origin is None:
        return
    stored = StoredAnswer(
        question, origin.data, origin.with_test, dict(origin.options), run.progress, answer.summary, answer.cards
    )
    try:
        folder = run.path / ANSWERS
        folder.mkdir(exist_ok=True)
        write_text(folder / f"{question}.json", json.dumps(asdict(stored)))
    except (OSError, StorageError) as error:  # the answer itself has been delivered
        print_message(f"the report will not show this answer: {first_line(error)}")


def read_answers(run: Run) -> list[StoredAnswer]:
    """Read the answers about a run's current encoder; damaged ones are skipped with a message."""
    answers = []
    for path in sorted((run.path / ANSWERS).glob("*.json")) if run.path is not None else []:
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(value, Mapping) and value.get("format") != FORMAT_VERSION:
                raise InputError(f"format {value.get('format')!r} is not supported")
            answer = build(StoredAnswer, value)
            if unknown := answer.options.keys() - OPTIONS:
                raise InputError(f"unknown options {sorted(unknown)}")
        except (OSError, ValueError, RecursionError) as error:
            print_message(f"skipped {path}: {first_line(error)}")
            continue
        if answer.progress == run.progress:
            answers.append(answer)
    return answers
