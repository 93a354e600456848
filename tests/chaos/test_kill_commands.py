"""Commands that are killed: files are complete or absent, and the same command works again.

A command is killed before it creates, renames or deletes a file: the first time in its first run, the second time in
its second run, and so on, until it finishes; the short form is killed at two of these moments. Each run finds what the
killed one left behind.
"""

import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import imix
from imix.reproduce.results import read_results
from tests.chaos.processes import (
    LONG,
    Command,
    assert_readable,
    child_pids,
    is_running,
    run_command,
    wait_until,
)

MOMENTS = range(1, 200) if LONG else (1, 8, 200)  # of the kills, in changes of files
CHANGES = ("os.rename", "os.remove", "os.mkdir")


def die_before_change(number: int, folder: Path) -> None:
    """Let this process kill itself before it changes a file in the folder for the `number`-th time."""
    count = 0

    def hook(event, arguments):
        nonlocal count
        is_write = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (is_write or event in CHANGES) and str(arguments[0]).startswith(str(folder)):
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def run_killed(*arguments, folder, check):
    """Run a command that is killed at these changes in turn, with a check after each, until it finishes."""
    for number in MOMENTS:
        result = run_command(*arguments, folder=folder.parent, prepare=(die_before_change, number, folder))
        check()
        if result.code != -signal.SIGKILL:
            assert result.code == 0, result.stderr
            assert number > MOMENTS[0], "nothing was killed"
            return
    raise AssertionError("the command never finished")


def run_killed_at_random(*arguments, folder, check):
    """Run a command that is killed from outside at random moments, with a check after each, and then to its end."""
    rng = random.Random(0)
    for _ in range(20):
        command = Command(arguments, folder.parent)
        command.process.join(rng.uniform(0, 2))
        command.process.kill()
        command.wait()
        check()
    result = run_command(*arguments, folder=folder.parent)
    assert result.code == 0, result.stderr
    check()


long_form = [
    pytest.mark.full,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not LONG, reason="long form only (IMIX_CHAOS=long): takes minutes"),
]
KILLS = pytest.mark.parametrize("kill", [run_killed, pytest.param(run_killed_at_random, marks=long_form)])


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    """A table with two label columns, and the folder of a run on it."""
    folder = tmp_path_factory.mktemp("table")
    rows = "".join(f"{i * 0.37 % 5},{i * 0.91 % 3},{i % 4},{'xyz'[i % 3]}\n" for i in range(60))
    (folder / "t.csv").write_text(f"a,b,label,other\n{rows}")
    settings = imix.Settings(encoder="mlp:16-16", batch_size=16, epochs=1, device="cpu")
    data_settings = imix.DataSettings(label="label", columns={"other": "drop"})
    imix.pretrain(folder / "t.csv", settings, data_settings, out=folder / "run", progress=False)
    return folder / "t.csv", folder / "run"


@pytest.fixture
def work(tmp_path):
    """The folder that a command changes."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@KILLS
@pytest.mark.parametrize("overwrite", [False, True])
def test_fine_tuning(table_run, work, overwrite, kill):
    """If another classifier is replaced, its files are not mixed with those of the new one."""
    (table, run), out = table_run, work / "tuned"
    overwrite |= kill is run_killed_at_random  # a kill may come after the last change
    if overwrite:
        imix.finetune(run, table, label="other", epochs=1, device="cpu", out=out)

    def check():
        try:
            tuned = imix.load_run(out)
        except imix.InputError as error:
            assert re.search("not a run folder|no run folder", str(error))  # noqa: PT017
            return
        assert tuned.head.out_features == len(tuned.config.classes) > 0

    options = ["--epochs", 2, "--device", "cpu", *(["--overwrite"] if overwrite else [])]
    kill("finetune", run, "--out", out, *options, folder=work, check=check)
    assert imix.load_run(out).config.classes == ("0", "1", "2", "3")
    assert not list(out.glob(".*"))


@KILLS
def test_a_report(table_run, work, kill):
    run = work / "run"
    run.mkdir()
    for path in table_run[1].iterdir():
        (run / path.name).write_bytes(path.read_bytes())

    def check():
        page = run / "report.html"
        assert not page.exists() or page.read_text().rstrip().endswith("</html>")
        assert len(imix.load_run(run).evaluations) in (0, 5)

    kill("report", run, "--samples", 20, folder=work, check=check)
    assert (run / "report.html").exists()


@pytest.fixture(scope="module")
def image_run(tmp_path_factory):
    """The folder of a run with a ResNet."""
    folder = tmp_path_factory.mktemp("images") / "run"
    settings = imix.Settings(epochs=1, batch_size=4, encoder="resnet18", device="cpu")
    imix.pretrain(torch.rand(4, 3, 8, 8), settings, out=folder, progress=False)
    return folder


@KILLS
@pytest.mark.parametrize(("format", "name"), [("timm", "a.safetensors"), ("torchvision", "a.pth")])
def test_an_export(image_run, work, tmp_path, format, name, kill):
    (work / name).write_bytes(b"an earlier export")
    weights = image_run / "encoder.safetensors"
    n_weights = sum(name.startswith("encoder.") for name in load_file(weights))

    def is_exported():
        if (work / name).read_bytes() == b"an earlier export":
            return False
        state = load_file(work / name) if format == "timm" else torch.load(work / name, weights_only=True)
        assert len(state) == n_weights
        return True

    kill("export", image_run, "--format", format, "--out", work / name, folder=work, check=is_exported)
    assert is_exported()


@KILLS
@pytest.mark.parametrize("overwrite", [False, True])
def test_an_export_to_a_folder(image_run, table_run, work, overwrite, kill):
    """The folder is complete or absent, and its files are not mixed with those of an earlier export."""
    out = work / "model"
    overwrite |= kill is run_killed_at_random  # a kill may come after the last change
    if overwrite:
        imix.export(table_run[1], "huggingface", out)

    def check():
        if out.exists():
            assert sorted(path.name for path in out.iterdir()) == ["README.md", "config.json", "model.safetensors"]
            encoder = imix.load_run(out).config.architecture.encoder
            assert encoder in ("resnet18", "mlp:16-16")
            assert imix.load_encoder(out / "model.safetensors")[-1].width == (512 if encoder == "resnet18" else 4)
            assert f"| `encoder` | `{encoder}` |" in (out / "README.md").read_text()

    options = ["--overwrite"] if overwrite else []
    kill("export", image_run, "--format", "huggingface", "--out", out, *options, folder=work, check=check)
    assert imix.load_run(out).config.architecture.encoder == "resnet18"


# --- reproduce --------------------------------------------------------------------------------------------------------

REPRODUCE = ["reproduce", "table1", "--budget", "smoke", "--row", "covtype"]


def results(folder):
    """The numbers in a result file."""
    rows = read_results(folder / "table1.csv")
    return sorted((row.row, row.column, row.seed, row.value) for row in rows)


@KILLS
def test_reproduce(work, tmp_path, kill):
    arguments = [*REPRODUCE, "--column", "N-pair"]
    assert run_command(*arguments, "--out", tmp_path / "clean", folder=tmp_path).code == 0

    def check():
        assert results(work) in ([], results(tmp_path / "clean"))
        for folder in work.glob("runs/*"):
            assert_readable(folder)

    kill(*arguments, "--out", work, folder=work, check=check)
    assert results(work) == results(tmp_path / "clean") != []


def test_the_workers_of_reproduce_stop_when_it_is_killed(tmp_path):
    arguments = [*REPRODUCE, "--devices", "cpu", "cpu", "--out", tmp_path / "out"]
    words = [sys.executable, "-m", "imix", *map(str, arguments)]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
    wait_until(lambda: list(tmp_path.glob("out/runs/*")), timeout=120)
    children = child_pids(process.pid)
    assert len(children) >= 2
    process.kill()
    process.wait()
    wait_until(lambda: not any(map(is_running, children)))


LATE_SIGTERM = """
import signal, sys, time
from dataclasses import dataclass
from pathlib import Path
from imix.reproduce.parallel import run_jobs

@dataclass(frozen=True)
class Late:
    out: Path
    device: str = ""
    progress: bool = False

    def run(self, job):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as while the last checkpoint is written
        (self.out / str(job)).touch()
        time.sleep(2)

if __name__ == "__main__":
    list(run_jobs(range(2), Late(Path(sys.argv[1])), ["cpu", "cpu"]))
"""


def test_workers_of_reproduce_that_get_no_sigterm_stop_after_their_job(tmp_path):
    (tmp_path / "main.py").write_text(LATE_SIGTERM)
    (tmp_path / "out").mkdir()
    process = subprocess.Popen([sys.executable, tmp_path / "main.py", tmp_path / "out"], stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(tmp_path.glob("out/*"))) == 2, timeout=120)
    children = child_pids(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not any(map(is_running, children)))
