"""The section of a report with answers about groups, duplicates and the like."""

import shutil

import polars
import pytest

import imix
from imix.reports.answers import answer_sections
from imix.reports.groups import group_runs

from .helpers import content_of

pytestmark = pytest.mark.slow


@pytest.fixture
def asked(runs, table, tmp_path):
    """A run with answers about its data, which has 90 rows, with a test file of 10 of them."""
    folder = tmp_path / "asked"
    shutil.copytree(runs[0], folder)
    test = tmp_path / "test.csv"
    polars.read_csv(table)[:10].write_csv(test)
    imix.duplicates(folder, test=test)
    imix.label_errors(folder)
    return imix.load_run(folder)


def test_the_page_shows_the_answers_with_their_samples(asked, tmp_path):
    content = content_of(imix.report(asked, tmp_path / "r.html", samples=10))
    assert [section["title"] for section in content["answers"]] == ["Duplicates", "Possible label errors"]
    duplicates = content["answers"][0]
    assert duplicates["lead"][0].split(": ")[1].startswith("10 exact, ")
    first, second = next(card["samples"] for card in duplicates["cards"] if card["title"] == "Exact duplicate")
    pair = [content["samples"][key]["rows"][place] for key, place, _ in (first, second)]
    assert pair[0] == pair[1]
    assert [content["samples"][key]["split"] for key, _, _ in (first, second)] == ["training", "test"]


def test_samples_have_the_row_numbers_of_the_answer(asked):
    sections, samples = answer_sections(group_runs([asked]))
    expected = imix.label_errors(asked).cards
    for card, wanted in zip(sections[1]["cards"], expected, strict=True):
        assert [samples[key]["indices"][place] for key, place, _ in card["samples"]] == list(wanted.samples)


def test_answers_about_data_that_has_changed_are_left_out(asked, table, tmp_path, capsys):
    (tmp_path / "test.csv").unlink()
    sections, _ = answer_sections(group_runs([asked]))
    assert [section["title"] for section in sections] == ["Possible label errors"]
    assert "Duplicates of asked are not shown" in capsys.readouterr().err


def test_a_run_without_answers_has_no_section(runs):
    assert answer_sections(group_runs([imix.load_run(runs[1])])) == ([], {})
