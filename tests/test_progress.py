"""Progress lines of long-running work."""

from imix.progress import ProgressLine


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
