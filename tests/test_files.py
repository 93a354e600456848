"""Concurrent writes of `imix.files`, as several commands that write the same page do."""

import os
import subprocess
import sys

from imix.files import write_text


def test_processes_can_write_the_same_file_concurrently(tmp_path):
    script = "from pathlib import Path\nfrom imix.files import write_text\n"
    script += f"for _ in range(100): write_text(Path({str(tmp_path / 'page')!r}), 'complete')"
    processes = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("page", "complete")]


def test_temporary_files_of_killed_processes_are_removed(tmp_path):
    finished = subprocess.Popen(["true"])
    finished.wait()
    (tmp_path / f".{finished.pid}.page.unfinished").write_text("half")
    os.utime(tmp_path / f".{finished.pid}.page.unfinished", (0, 0))
    (tmp_path / f".{finished.pid + 1_000_000}.page.unfinished").write_text("being written on another machine")
    (tmp_path / ".x.page.unfinished").write_text("not from imix")
    (tmp_path / f".{os.getppid()}.page.unfinished").write_text("being written")
    write_text(tmp_path / "page", "complete")
    assert not (tmp_path / f".{finished.pid}.page.unfinished").exists()
    assert len(list(tmp_path.iterdir())) == 4
