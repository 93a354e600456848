"""The section of a report with the results of `imix cluster`, `imix duplicates` and the other exploration commands."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from imix.data import Data
from imix.errors import InputError
from imix.explore.stored import StoredAnswer, read_answers
from imix.output import print_message
from imix.probes.run_data import load_for_run
from imix.reports.groups import RunGroup
from imix.reports.samples import SampleSelection, sample_content
from imix.run import Run

TITLES = {
    "cluster": "Groups",
    "similar": "Similar samples",
    "duplicates": "Duplicates",
    "outliers": "Outliers",
    "select": "What to label next",
    "label-errors": "Possible label errors",
}


def answer_sections(groups: Sequence[RunGroup]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a section for each answer about the first run of each group, and the samples that they show, by key."""
    sections: list[dict[str, Any]] = []
    samples: dict[str, Any] = {}
    for i, group in enumerate(groups):
        answers = {answer.question: answer for answer in read_answers(group.runs[0])}
        for question in TITLES:
            if question not in answers:
                continue
            answer = answers[question]
            try:
                parts = _parts(group.runs[0], answer, f"answer {i} {question}")
            except (InputError, OSError) as error:
                print_message(f"{TITLES[question]} of {group.name} are not shown: {error}")
                continue
            samples |= {key: content for key, (_, content) in parts.items()}
            lead = answer.summary.split("\n\n")[0].split("\n")
            cards = _cards(answer, {key: places for key, (places, _) in parts.items()})
            sections.append({"group": i, "title": TITLES[question], "lead": lead, "cards": cards})
    return sections, samples


def _parts(run: Run, answer: StoredAnswer, key: str) -> dict[str, tuple[dict[int, int], dict[str, Any]]]:
    """Return, for each split by its key, the place of each position in the content, and the content."""
    data = load_for_run(run, answer.data, given_rows_only=not answer.with_test, **answer.options)
    positions = np.unique([position for card in answer.cards for position in card.samples]).astype(int)
    n_train, n = len(data.train), len(data.train) + (0 if data.test is None else len(data.test))
    if len(positions) and not (positions[0] >= 0 and positions[-1] < n):
        raise InputError(f"{data.name} has changed: it has {n:,} samples")
    parts = {"training": (positions[positions < n_train], 0), "test": (positions[positions >= n_train], n_train)}
    return {
        f"{key} {split}": (
            {int(row): place for place, row in enumerate(rows)},
            _content(run, data, split, rows - first),
        )
        for split, (rows, first) in parts.items()
        if len(rows)
    }


def _content(run: Run, data: Data, split: str, rows: np.ndarray) -> dict[str, Any]:
    source = data.train if split == "training" else data.test
    assert source is not None
    return sample_content(run, data, SampleSelection(split, source, rows))


def _cards(answer: StoredAnswer, places: dict[str, dict[int, int]]) -> list[dict[str, Any]]:
    """Return the cards, with each sample as a tuple (key of its content, index in it, caption)."""
    where = {row: (key, place) for key, rows in places.items() for row, place in rows.items()}
    cards = []
    for card in answer.cards:
        captions = [*card.captions, *[""] * (len(card.samples) - len(card.captions))]
        shown = [[*where[row], caption] for row, caption in zip(card.samples, captions, strict=False)]
        cards.append({"title": card.title, "text": card.text, "samples": shown})
    return cards
