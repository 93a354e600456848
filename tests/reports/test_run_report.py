"""`imix.report`: names of runs, and reports that follow runs while they train."""

import threading
from dataclasses import replace

import pytest

import imix
from imix.cli.app import build_app
from imix.errors import InputError
from imix.reports import run_report

from .helpers import QUICK, content_of, with_config

pytestmark = pytest.mark.slow


def test_runs_have_the_given_names(runs, tmp_path):
    page = imix.report([runs[0], runs[2]], tmp_path / "r.html", samples=10, names=["without i-Mix", "with i-Mix"])
    assert content_of(page)["groups"] == ["without i-Mix", "with i-Mix"]


def test_runs_that_differ_only_in_their_seed_may_share_a_name(runs, tmp_path):
    page = imix.report(runs, tmp_path / "r.html", samples=10, names=["plain", "plain", "mixed", "mixed"])
    assert content_of(page)["groups"] == ["plain", "mixed"]


def test_every_run_needs_a_name(runs):
    with pytest.raises(InputError, match="`names` needs one name for each of the 2 runs; got 1"):
        imix.report(runs[:2], names="plain")


def test_the_command_line_takes_names(runs, tmp_path):
    arguments = ["report", str(runs[0]), str(runs[2]), "--names", "a", "b", "--out", str(tmp_path / "r.html")]
    build_app()([*arguments, "--samples", "10"], exit_on_error=False, result_action="return_value")
    assert content_of(tmp_path / "r.html")["groups"] == ["a", "b"]


def test_a_watched_report_follows_a_run_until_it_ends(table, tmp_path, monkeypatch, capfd):
    run, written = tmp_path / "run", threading.Event()
    (tmp_path / "run").mkdir()
    started, pages = threading.Event(), []

    def wait_for_report(state):
        started.set()
        if state.epoch == 2:
            assert written.wait(60)

    def train():
        settings = replace(QUICK, epochs=4, checkpoint_minutes=0)
        imix.pretrain(table, settings, label="breed", out=run, progress=False, on_epoch=wait_for_report)

    def write_report(path, *arguments):
        original(path, *arguments)
        pages.append(path.read_text())
        written.set()
        return path

    original = run_report.write_report
    monkeypatch.setattr(run_report, "write_report", write_report)
    monkeypatch.setattr(run_report, "WATCH_SECONDS", 0.05)
    training = threading.Thread(target=train)
    training.start()
    assert started.wait(60)
    page = imix.report(run, samples=10, watch=True)
    training.join()
    assert page == run / "report.html"
    assert 'http-equiv="refresh"' in pages[0] and "Training is not finished" in pages[0]
    assert 'http-equiv="refresh"' not in pages[-1] and "Training is not finished" not in pages[-1]
    assert "linear</th>" not in pages[0] and "linear (" in pages[-1]
    assert f"open {page}" in capfd.readouterr().err


def test_watching_a_finished_run_writes_the_report_once(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(run_report.time, "sleep", lambda seconds: pytest.fail("waited"))
    page = imix.report(runs[0], tmp_path / "r.html", samples=10, watch=True)
    assert 'http-equiv="refresh"' not in page.read_text()


def test_a_report_of_a_missing_run_names_it(tmp_path):
    with pytest.raises(InputError, match="none"):
        imix.report(tmp_path / "none")


def test_the_title_states_the_number_of_runs_and_data_sets(runs, run, tmp_path, monkeypatch):
    others = [with_config(run, "data", name=name) for name in ("/x/a.csv", "/x/b.csv")]
    monkeypatch.setattr(run_report, "write_report", lambda path, title, *_: title)
    assert imix.report([run, *others], tmp_path / "r.html") == "3 runs on 3 data sets"
    assert imix.report([run, run, others[0]], tmp_path / "r.html") == "3 runs on 2 data sets"
    assert imix.report(runs, tmp_path / "r.html") == "Comparison of 2 configurations on animals.csv"
    assert imix.report(runs[0], tmp_path / "r.html") == "plain-0 on animals.csv"
