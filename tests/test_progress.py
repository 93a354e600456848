"""Progress: lines of long-running work, and a live bar in terminals and notebooks."""

import io
import re
import sys

import IPython.display
import pytest

from imix import output
from imix.output import print_message
from imix.progress import ProgressBar, ProgressLine

DETAILS = ("loss 2.4387", "kNN 92.6%", "effective rank 15", "1-NN in batch 71%", "100,000 views/s")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True

    def frames(self):
        """Return what was shown in the last line, one text per update."""
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.getvalue())
        return [frame for frame in re.split(r"[\r\n]+", text) if frame]


class Gone(Terminal):
    def write(self, text):
        raise OSError(5, "Input/output error")


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("imix.progress.REFRESH_SECONDS", 0.0)


def show_training(steps=30):
    with ProgressBar("training", steps, "steps", position="epoch 1/3") as bar:
        for step in range(1, steps + 1):
            bar.advance(step)
            if step % 10 == 0:
                bar.show(step, f"epoch {step // 10}/3", *DETAILS)


def test_time_left_ignores_the_time_before_the_first_step(monkeypatch, capsys):
    now = iter([0.0, 100.0, 110.0, 130.0])
    monkeypatch.setattr("imix.progress.time.monotonic", lambda: next(now))
    progress = ProgressLine("training", 1000, "steps", always_show_ends=True)
    for done in (1, 2, 4):
        progress(done)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "training: 1 of 1,000 steps",
        "training: 2 of 1,000 steps, 2.8 hours left",
        "training: 4 of 1,000 steps, 2.8 hours left",
    ]


@pytest.mark.parametrize(("columns", "last_detail"), [(50, None), (80, "kNN 92.6%"), (120, DETAILS[-1])])
def test_a_bar_is_one_line_that_fits_the_terminal(monkeypatch, columns, last_detail):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    show_training()
    frames = terminal.frames()
    assert len(frames) > 30 and max(map(len, frames)) < columns
    assert terminal.getvalue().count("\n") == 1, "only the end of the work ends the line"
    assert "epoch 1/3" in frames[0] and re.search(r"epoch 2/3  0:00:00 left", frames[22])
    assert re.search(rf"epoch 3/3  took 0:00:00.*{last_detail or ''}\s*$", frames[-1])
    if last_detail is not None:
        assert not any(detail in frames[-1] for detail in DETAILS[DETAILS.index(last_detail) + 1 :])


def test_messages_are_printed_above_the_bar_and_results_are_not_redirected(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(sys, "stdout", results := io.StringIO())
    with ProgressBar("training", 2, "steps") as bar:
        bar.show(1, "epoch 1/2")
        print_message("hello")
        print("result")
        bar.show(2, "epoch 2/2")
    frames = terminal.frames()
    assert frames.index("hello") < len(frames) - 2
    assert results.getvalue() == "result\n"


def test_a_terminal_that_is_gone_does_not_stop_the_work(monkeypatch):
    monkeypatch.setattr(output, "lost_messages", [])
    monkeypatch.setattr(sys, "stderr", Gone())
    show_training()
    assert isinstance(output.lost_messages[0], OSError)


@pytest.mark.parametrize("dumb", [True, False])
def test_without_a_terminal_that_can_move_its_cursor_lines_are_printed(monkeypatch, capsys, dumb):
    if dumb:
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(sys, "stderr", Terminal())
    show_training()
    text = sys.stderr.getvalue() if dumb else capsys.readouterr().err
    assert text.splitlines() == [
        f"training: 10 of 30 steps, epoch 1/3, {', '.join(DETAILS)}",
        f"training: 30 of 30 steps, epoch 3/3, {', '.join(DETAILS)}",
    ]


def test_a_bar_in_a_notebook_replaces_one_output(monkeypatch, capsys):
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(content)

    def display(content, raw, display_id):
        assert raw and display_id and not shown, "only the first content is a new output"
        shown.append(content)
        return Handle()

    monkeypatch.setattr("imix.progress.in_notebook", lambda: True)
    monkeypatch.setattr(IPython.display, "display", display)
    show_training()
    assert len(shown) > 30
    assert shown[-1]["text/html"].startswith('<div><progress value="30" max="30"></progress> epoch 3/3')
    assert shown[-1]["text/plain"].endswith("  ".join(DETAILS))
    assert capsys.readouterr().err == ""


def test_a_bar_that_is_updated_often_is_drawn_rarely(monkeypatch):
    monkeypatch.setattr("imix.progress.REFRESH_SECONDS", 60.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    show_training(steps=3000)
    assert len(terminal.frames()) < 5
    assert "epoch 300/3" in terminal.frames()[-1], "the end is always shown"
