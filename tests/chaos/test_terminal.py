"""A terminal that is closed, full or gone does not stop a run, and names from files cannot control it."""

import os
import pty
import signal
import sys
import threading
import warnings

import pytest

from imix import files
from imix.cli import main
from imix.run import checkpoint
from tests.chaos import corpus
from tests.chaos.processes import (
    EXIT_FAILURE,
    EXIT_RESUMABLE,
    Command,
    assert_readable,
    count_records,
    run_command,
    wait_until,
)

STDOUT, STDERR = 1, 2
RUN = ["pretrain", "digits", "--epochs", 3, "--encoder", "mlp:16-16", "--device", "cpu"]
ENDLESS = ["pretrain", "digits", "--epochs", 100_000, "--encoder", "mlp:16-16", "--device", "cpu", "--resume"]


def redirect(descriptor: int, target: int | None) -> None:
    """Make stdout or stderr write to another descriptor, or close it."""
    name = {STDOUT: "stdout", STDERR: "stderr"}[descriptor]
    setattr(sys, name, None)  # closes the descriptor
    if target is not None:
        os.dup2(target, descriptor)
        setattr(sys, name, open(descriptor, "w", buffering=1))  # noqa: SIM115


def break_streams(how: str, *descriptors: int) -> None:
    """Close stdout or stderr, as a shell does, or let writing to them fail."""
    reader, writer = os.pipe()
    os.close(reader)
    targets = {"closed": None, "full": os.open("/dev/full", os.O_WRONLY), "reader gone": writer}
    for descriptor in descriptors:
        redirect(descriptor, targets[how])


def assert_trained(folder, epochs):
    """Assert that a run has finished, with a record and a checkpoint for all of its epochs."""
    assert len(files.read_jsonl(folder / "metrics.jsonl")) == epochs
    assert checkpoint.load(folder / "checkpoint.pt")["epoch"] == epochs
    assert (folder / "encoder.safetensors").exists()


@pytest.mark.parametrize("how", ["closed", "full", "reader gone"])
def test_a_run_goes_on_without_stderr_and_reports_it_at_the_end(tmp_path, how):
    result = run_command(*RUN, "--out", tmp_path / "run", folder=tmp_path, prepare=(break_streams, how, STDERR))
    reason = {"full": "[Errno 28] No space left on device", "reader gone": "[Errno 32] Broken pipe"}.get(how)
    report = f"imix: some messages could not be written to stderr: {reason}" if reason else ""
    lines = result.stdout.splitlines()
    assert (result.code, lines[0]) == (0, f"encoder written to {tmp_path}/run/encoder.safetensors")
    assert lines[-1] == (report or f"  imix report {tmp_path}/run")
    assert_trained(tmp_path / "run", 3)


@pytest.mark.parametrize("how", ["closed", "full", "reader gone"])
def test_a_run_goes_on_without_stdout_and_exits_with_a_failure(tmp_path, how):
    result = run_command(*RUN, "--out", tmp_path / "run", folder=tmp_path, prepare=(break_streams, how, STDOUT))
    assert result.code == EXIT_FAILURE
    reason = {"closed": "[Errno 9] Bad file descriptor", "full": "[Errno 28] No space left on device"}.get(how)
    assert result.last_line.startswith(f"imix: cannot write to stdout: {reason}" if reason else "training: 15 of 15")
    assert "Traceback" not in result.stderr
    assert_trained(tmp_path / "run", 3)


@pytest.mark.parametrize("how", ["closed", "full", "reader gone"])
def test_a_run_goes_on_without_any_output(tmp_path, how):
    prepare = (break_streams, how, STDOUT, STDERR)
    assert run_command(*RUN, "--out", tmp_path / "run", folder=tmp_path, prepare=prepare).code == EXIT_FAILURE
    assert_trained(tmp_path / "run", 3)


@pytest.mark.parametrize("arguments", [["data", "list"], ["--help"], ["pretrain", "--help"], ["--version"]], ids=str)
@pytest.mark.parametrize("how", ["closed", "full", "reader gone"])
def test_a_command_that_cannot_print_its_result_fails_without_a_traceback(tmp_path, how, arguments):
    result = run_command(*arguments, folder=tmp_path, prepare=(break_streams, how, STDOUT))
    assert (result.code, len(result.stderr.splitlines())) == (EXIT_FAILURE, how != "reader gone"), result.stderr


# --- a terminal that disappears ---------------------------------------------------------------------------------------


def close_terminal_after_three_records(folder) -> None:
    """Make stderr a terminal that shows a live progress bar, and close its other end during training."""
    terminal, descriptor = pty.openpty()
    redirect(STDERR, descriptor)
    os.close(descriptor)

    def read_and_close():
        shown = b""
        while count_records(folder) < 3:
            shown += os.read(terminal, 1000)
        (folder / "shown.txt").write_bytes(shown)
        os.close(terminal)

    threading.Thread(target=read_and_close, daemon=True).start()


def test_a_progress_bar_survives_a_terminal_that_is_gone(tmp_path):
    folder = tmp_path / "run"
    arguments = ["pretrain", "digits", "--epochs", 600, *RUN[4:], "--out", folder]
    result = run_command(*arguments, folder=tmp_path, prepare=(close_terminal_after_three_records, folder))
    assert result.code == 0, result.stdout
    assert result.stdout.endswith("some messages could not be written to stderr: [Errno 5] Input/output error\n")
    assert "loss" in (folder / "shown.txt").read_text()
    assert_trained(folder, 600)


def test_a_run_under_nohup_ignores_a_hangup(tmp_path):
    folder = tmp_path / "run"
    command = Command([*ENDLESS, "--out", folder], tmp_path, prepare=(signal.signal, signal.SIGHUP, signal.SIG_IGN))
    wait_until(lambda: count_records(folder) >= 2)
    for _ in range(3):
        command.send_signal(signal.SIGHUP)
        n_records = count_records(folder)
        wait_until(lambda before=n_records: count_records(folder) > before + 2)
    command.send_signal(signal.SIGTERM)
    assert command.wait(10).code == EXIT_RESUMABLE


@pytest.mark.slow
def test_a_run_whose_controlling_terminal_is_closed_saves_a_checkpoint(tmp_path):
    folder = tmp_path / "run"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "imix", *map(str, ENDLESS), "--out", str(folder)])
    wait_until(lambda: os.read(terminal, 1000) and count_records(folder) >= 3)
    os.close(terminal)  # the kernel sends SIGHUP
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == EXIT_RESUMABLE
    assert_readable(folder)
    state = checkpoint.load(folder / "checkpoint.pt")
    assert state["epoch"] * 5 + state["step"] >= files.read_jsonl(folder / "metrics.jsonl")[-1]["step"]


# --- names that contain control characters ----------------------------------------------------------------------------

EVIL = "\x1b]0;title\x07\x9b31m\u202e\r\x08name\nimix: fake"


def assert_harmless(*results):
    """Assert that the output of commands has no control characters, and no line made up by a name."""
    for result in results:
        assert result.code == 0, result.stderr
        for line in (result.stdout + result.stderr).split("\n"):
            assert line.isprintable(), repr(line)
            assert not line.startswith("imix: fake")


def test_names_in_a_table_cannot_control_the_terminal(tmp_path):
    folder = tmp_path / EVIL
    folder.mkdir()
    table, run, tuned = folder / f"{EVIL}.csv", folder / "run", folder / "tuned"
    rows = "".join(f'{i * 0.37 % 5},{"ab"[i % 2]},"{EVIL}{i % 2}"\n' for i in range(80))
    table.write_text(f'size,"{EVIL}","{EVIL} label"\n{rows}', newline="")
    label = ["--label", f"{EVIL} label"]
    size = ["--epochs", 1, "--encoder", "mlp:8-8", "--device", "cpu"]

    def run_here(*arguments):
        return run_command(*arguments, folder=tmp_path)

    assert_harmless(run_here("pretrain", table, *label, "--out", run, *size))
    (run / "metrics.jsonl").write_bytes(b"damaged\n" + (run / "metrics.jsonl").read_bytes())
    (run / "evaluations.jsonl").write_text('{"protocol": "\\u001b[31m"}\n')
    assert_harmless(
        run_here("evaluate", run, "--labels-per-class", 3, "--draws", 2),
        run_here("evaluate", run, "--protocol", "knn", "--test", table),
        run_here("transfer", run, "--data", table, "--protocol", "knn"),
        run_here("embed", run, table, "--out", folder / "z.npy"),
        run_here("map", run, "--out", folder / "map.svg", "--samples", 20),
        run_here("finetune", run, "--out", tuned, "--epochs", 1),
        run_here("predict", tuned, table, "--out", folder / "p.csv"),
        run_here("report", run, "--out", folder / "report.html", "--samples", 20),
        run_here("bench", table, *size, "--duration", 0.05),
    )


def test_names_of_images_and_classes_cannot_control_the_terminal(tmp_path):
    for label in ("a", "b"):
        (tmp_path / EVIL / f"{EVIL}{label}").mkdir(parents=True)
        for i in range(25):
            corpus.write_image(tmp_path / EVIL / f"{EVIL}{label}" / f"{i}.png", (16, 16), seed=i)
    (tmp_path / EVIL / f"{EVIL}a" / f"{EVIL}.png").write_bytes(b"broken")
    (tmp_path / EVIL / f"{EVIL}.heic").write_bytes(b"unsupported")
    run, size = tmp_path / "run", ["--epochs", 1, "--image-size", 16, "--encoder", "resnet18", "--device", "cpu"]
    assert_harmless(
        run_command("pretrain", tmp_path / EVIL, "--out", run, *size, "--batch-size", 8, folder=tmp_path),
        run_command("evaluate", run, "--protocol", "knn", folder=tmp_path),
        run_command("export", run, "--format", "torchvision", "--out", tmp_path / f"{EVIL}.pth", folder=tmp_path),
        run_command("export", run, "--format", "huggingface", "--out", tmp_path / f"{EVIL}m", folder=tmp_path),
    )


def test_the_output_folder_of_reproduce_cannot_control_the_terminal(tmp_path):
    arguments = ["reproduce", "table1", "--budget", "smoke", "--out", tmp_path / EVIL]
    cell = ["--row", "covtype", "--column", "N-pair"]
    assert_harmless(
        run_command(*arguments, *cell, folder=tmp_path),
        run_command(*arguments, *cell, "--list", folder=tmp_path),
        run_command(*arguments, *cell, "--slurm", folder=tmp_path),
        run_command(*arguments, *cell, "--commands", "--data-dir", tmp_path / EVIL, folder=tmp_path),
    )


def test_warnings_and_unexpected_errors_cannot_control_the_terminal(monkeypatch, capsys):
    def fail():
        warnings.warn(EVIL, stacklevel=2)
        raise RuntimeError(EVIL)

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # `main` sets it
    monkeypatch.setattr(sys, "argv", ["imix", "data", "list"])
    monkeypatch.setattr("imix.data.named.list_datasets", fail)
    with pytest.raises(RuntimeError) as error:
        main()
    sys.excepthook(error.type, error.value, error.tb)  # as Python does
    stderr = capsys.readouterr().err
    assert stderr.startswith(r"UserWarning: \x1b]0;title")
    assert r"RuntimeError: \x1b]0;title" in stderr
    assert stderr.replace("\n", "").isprintable()
