"""Concurrent writes of `imix.files`, as several commands that write the same page do, and folders."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from imix.errors import StorageError
from imix.files import remove, write_atomically, write_folder, write_text


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


def test_a_clock_that_jumps_does_not_remove_a_file_that_is_being_written(tmp_path, monkeypatch):
    def write_while_the_clock_jumps(file):
        for years in (30, -30):
            now = time.time() + years * 365 * 86_400
            monkeypatch.setattr(time, "time", lambda now=now: now)
            write_text(tmp_path / "other", "complete")
        file.write(b"complete")

    write_atomically(tmp_path / "page", write_while_the_clock_jumps)
    assert (tmp_path / "page").read_text() == "complete"


def test_temporary_files_are_removed_as_soon_as_their_process_is_gone(tmp_path):
    script = f"""
import os, pathlib, signal, sys
from imix.files import write_atomically
path = pathlib.Path({str(tmp_path)!r}) / sys.argv[1]
write_atomically(path, lambda file: (file.write(b"half"), file.flush(), print(flush=True), signal.pause()))
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", script, name], stdout=subprocess.PIPE) for name in ("dead", "alive")
    ]
    for writer in writers:
        writer.stdout.readline()
    temporary = {path.name.split(".")[2]: path for path in tmp_path.iterdir()}
    for path in temporary.values():
        os.utime(path, (0, 0))
    os.mkfifo(tmp_path / ".pipe.unfinished")
    writers[0].kill()
    writers[0].wait()
    write_text(tmp_path / "page", "complete")
    assert not temporary["dead"].exists()
    assert temporary["alive"].exists()
    writers[1].kill()
    writers[1].wait()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    write_folder(tmp_path / "a", lambda folder: write_text(folder / "old", "1"))
    write_folder(tmp_path / "a", lambda folder: write_text(folder / "new", "2"))
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["new"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_folder_that_cannot_be_written_leaves_the_old_one(tmp_path, error):
    def fail(folder):
        write_text(folder / "half", "")
        raise error

    with pytest.raises(error):
        write_folder(tmp_path / "a", fail)
    assert names(tmp_path) == []
    write_folder(tmp_path / "a", lambda folder: write_text(folder / "old", "1"))
    with pytest.raises(error):
        write_folder(tmp_path / "a", fail)
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["old"]


def test_the_old_folder_comes_back_if_the_new_one_cannot_be_renamed(tmp_path, monkeypatch):
    write_folder(tmp_path / "a", lambda folder: write_text(folder / "old", "1"))
    rename = Path.rename

    def fail(path, target):
        if (path / "new").exists():
            raise OSError(16, "Device or resource busy")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(StorageError, match="Device or resource busy"):
        write_folder(tmp_path / "a", lambda folder: write_text(folder / "new", "2"))
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["old"]


def test_temporary_folders_of_killed_processes_are_removed_but_not_one_that_is_being_written(tmp_path):
    abandoned = tmp_path / ".123.a.unfinished"
    abandoned.mkdir()
    (abandoned / "half").write_text("")
    os.utime(abandoned, (0, 0))

    def write_while_another_file_is_written(folder):
        write_text(folder / "b", "complete")
        os.utime(folder, (0, 0))
        write_text(tmp_path / "page", "complete")
        assert names(folder) == ["b"]

    write_folder(tmp_path / "a", write_while_another_file_is_written)
    assert names(tmp_path) == ["a", "page"]


def test_remove_deletes_files_folders_and_links_but_not_what_they_point_to(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    remove(tmp_path / "link")
    assert names(tmp_path) == ["folder"]
    remove(tmp_path / "nothing")
    remove(tmp_path / "folder")
    assert names(tmp_path) == []
