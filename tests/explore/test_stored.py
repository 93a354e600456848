"""Answers that are stored in the run folder for the report."""

import json
from dataclasses import replace

import polars
import pytest
import torch

import imix
from imix.explore.result import Card
from imix.explore.stored import read_answers
from imix.run import clear_run_folder


@pytest.fixture
def copied_run(run, tmp_path):
    """A run folder of its own, without answers."""
    (tmp_path / "run").mkdir()
    for file in run.path.iterdir():
        if file.is_file():
            (tmp_path / "run" / file.name).write_bytes(file.read_bytes())
    return imix.load_run(tmp_path / "run")


def test_the_answer_about_named_data_is_stored_and_the_newest_replaces_it(copied_run, table):
    imix.outliers(copied_run, table, k=5)
    newest = imix.outliers(copied_run, table, label="churned")
    (stored,) = read_answers(copied_run)
    assert stored.question == "outliers" and stored.data == str(table)
    assert stored.summary == newest.summary and stored.cards == newest.cards
    assert not stored.with_test and stored.options == {"label": "churned"}


def test_answers_about_data_in_memory_are_not_stored(copied_run, table):
    imix.outliers(copied_run, polars.read_csv(table))
    imix.outliers(None, torch.randn(50, 4))
    assert read_answers(copied_run) == []


def test_an_answer_of_another_epoch_is_not_read(copied_run, table):
    imix.outliers(copied_run, table)
    assert read_answers(replace(copied_run, progress="epoch 1 of 9, step 3 of 27")) == []


def test_a_new_run_in_the_folder_starts_without_answers(copied_run, table):
    imix.outliers(copied_run, table)
    clear_run_folder(copied_run.path)
    assert read_answers(copied_run) == []


def test_an_answer_is_delivered_even_if_it_cannot_be_stored(copied_run, table, tmp_path, capsys):
    (copied_run.path / "answers").write_text("a file in the way")
    imix.outliers(copied_run, table, tmp_path / "outliers.csv")
    assert len(polars.read_csv(tmp_path / "outliers.csv")) == 180
    assert "the report will not show this answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "format 2 is not supported"),
        ({"options": {"shell": "rm"}}, "unknown options ['shell']"),
        ({"cards": [{"title": "a"}]}, "text is missing"),
        ({"cards": 5}, "cards must be a list"),
        (None, "must be an object"),
    ],
)
def test_a_damaged_answer_is_skipped_with_a_message(copied_run, table, capsys, changes, message):
    imix.outliers(copied_run, table)
    path = copied_run.path / "answers" / "outliers.json"
    path.write_text(json.dumps(None if changes is None else json.loads(path.read_text()) | changes))
    assert read_answers(copied_run) == []
    assert message in capsys.readouterr().err


def test_cards_of_duplicates_show_pairs_and_name_leakage(copied_run, table, tmp_path):
    test = tmp_path / "test.csv"
    polars.read_csv(table)[:5].write_csv(test)
    cards = imix.duplicates(copied_run, table, test=test).cards
    assert Card("Exact duplicate", "training and test sample", (0, 180)) in cards


def test_cards_of_similar_samples_start_with_the_query(copied_run, table):
    (card,) = imix.similar(copied_run, table, to=7, k=3).cards
    assert card.samples[0] == 7 and card.captions[0] == "query" and len(card.samples) == 4
    (other,) = imix.similar(copied_run, table, to=polars.read_csv(table)[:1], k=3).cards
    assert len(other.samples) == 3 and "query" not in other.captions


def test_cards_of_groups_show_typical_and_boundary_samples(copied_run, table):
    groups = imix.cluster(copied_run, table, k=3)
    assert [card.title.split(":")[0] for card in groups.cards] == ["Group 0", "Group 1", "Group 2"]
    card, typical = groups.cards[0], groups.groups["typical"][0].to_list()
    assert card.samples[: len(typical)] == tuple(typical)
    assert card.captions.count("typical") == len(typical)
