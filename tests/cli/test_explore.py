"""The commands that explore data: summaries, files and one-line errors."""

import polars
import pytest

import imix
from tests.explore.helpers import QUICK, customers


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run in a folder, next to customers.csv."""
    folder = tmp_path_factory.mktemp("explore")
    customers(120).write_csv(folder / "customers.csv")
    settings = imix.DataSettings(label="churned", columns={"id": "drop"})
    imix.pretrain(folder / "customers.csv", QUICK, settings, out=folder / "run", progress=False)
    return folder / "run"


@pytest.mark.parametrize(
    ("command", "first_line", "rows"),
    [
        (["cluster", "--k", 3], "3 groups of 120 samples", 120),
        (["cluster", "--method", "hdbscan", "--min-size", 20], "3 groups of 120 samples", 120),
        (["similar", "--to", 3, 4, "--k", 5], "5 nearest of 120 samples", 10),
        (["duplicates", "--threshold", 0], "duplicate pairs among 120 samples", 0),
        (["outliers"], "outliers among 120 samples", 120),
        (["select", "--n", 6], "6 of 120 training samples", 6),
        (["label-errors"], "labels of 120 samples", 120),
    ],
)
def test_each_question_prints_a_summary_and_writes_a_file(run_cli, run, tmp_path, command, first_line, rows):
    name, *options = command
    out = tmp_path / "answer.parquet"
    code, printed, _ = run_cli(name, run, *options, "--out", out, "--keep", "id", "--device", "cpu")
    assert code == 0 and printed.startswith(first_line)
    assert printed.endswith(f"written to {out}\n")
    frame = polars.read_parquet(out)
    assert len(frame) == rows and "id" in frame.columns


def test_data_is_optional_and_may_be_another_file(run_cli, run, tmp_path):
    customers(30, seed=1).write_csv(tmp_path / "new.csv")
    code, printed, _ = run_cli("select", run, tmp_path / "new.csv", "--n", 3, "--columns", "id", "drop")
    assert code == 0 and printed.startswith("3 of 30 training samples")
    code, printed, _ = run_cli("similar", run, "--to", tmp_path / "new.csv", "--k", 2)
    assert code == 0 and "for 30 queries" in printed
    code, printed, _ = run_cli("duplicates", run, run.parent / "customers.csv", "--test", tmp_path / "new.csv")
    assert code == 0 and "pairs consist of a training and a test sample (leakage)" in printed


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["cluster", "--k", 121], "--k must be between 1 and 120"),
        (["similar", "--k", 120], "--k must be between 1 and 119"),
        (["similar", "--to", 500], "--to has row 500"),
        (["duplicates", "--threshold", 3], "--threshold must be between 0 and 1"),
        (["outliers", "--k", 0], "--k must be between 1 and 119"),
        (["select", "--n", 121], "--n must be between 1 and 120"),
        (["select"], "--n"),
        (["label-errors", "--label", "nothing"], "has no column 'nothing'"),
        (["label-errors", "--label", "city"], "column 'city' was an input of this run"),
        (["cluster", "--keep", "group"], "--keep group is the name of an output column"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(run_cli, run, tmp_path, command, message):
    name, *options = command
    code, printed, error = run_cli(name, run, *options, "--out", tmp_path / "answer.csv")
    assert (code, printed) == (2, "")
    assert message in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
