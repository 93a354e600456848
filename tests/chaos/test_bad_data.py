"""Bad data on the command line: a clear error or a reported skip; never a traceback, a hang or silent garbage."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import imix
from imix import DataSettings, InputError, TrainingError
from imix.data import load
from tests.chaos import corpus
from tests.chaos.processes import EXIT_BAD_INPUT, LONG, CommandResult, run_command

QUICK = ["--epochs", 1, "--device", "cpu", "--batch-size", 8]
QUICK_ROWS = [*QUICK, "--encoder", "mlp:8-8"]
QUICK_SETTINGS = imix.Settings(epochs=1, batch_size=16, encoder="mlp:8-8", device="cpu")


def pretrain(data: Path, *options: object, folder: Path) -> CommandResult:
    environment = {"IMIX_CACHE": str(folder / "cache")}
    return run_command(
        "pretrain", data, "--out", folder / "run", *options, folder=folder, timeout=60, environment=environment
    )


def check_result(result: CommandResult, run: Path) -> None:
    """Assert that the command succeeded with finite weights, or was refused with a one-line error."""
    assert "Traceback" not in result.stderr, result.stderr
    assert result.code in (0, EXIT_BAD_INPUT), result.stderr
    if result.code == 0:
        weights = imix.load_encoder(run).state_dict().values()
        assert all(value.isfinite().all() for value in weights if value.is_floating_point())
    else:
        assert re.fullmatch(r"imix: .+", result.last_line), result.stderr
        assert result.last_line.isprintable(), "file names must not send escape sequences to the terminal"
        assert len(result.last_line) < 1500
        assert not run.exists()


# The files that must be refused, and a pattern of the error message. All other files must be accepted.
REFUSED_TABLES = {
    "empty.csv": "no columns",
    "blank lines.csv": "no columns",
    "header only.csv": "no rows",
    "one row.csv": "at least 2",
    "rows too long.csv": "Expected 2 columns, got 3",
    "rows too short.csv": "Expected 3 columns, got 2",
    "unclosed quote.csv": "a quote in row 1 is never closed",
    "latin-1.csv": "UTF-8",
    "utf-16.csv": "UTF-8",
    "utf-16 without bom.csv": "Expected 3 columns",
    "null bytes at the end.csv": "Expected 3 columns",
    "random bytes.csv": "UTF-8",
    "huge column name.csv": "field larger",
    "infinite.csv": "column 'a' .*2 infinite values, the first in row 20",
    "too large.csv": "column 'b' .*infinite|too large",
    "all missing.csv": "no column to learn from",
    "duplicate names.csv": "several columns called 'a'",
    "empty names.csv": "several columns called ''",
    "missing labels.csv": "has no values",
    "truncated.csv.gz": "Truncated",
    "not gzip.csv.gz": "incorrect header",
    "wrong checksum.csv.gz": "incorrect data",
    "not parquet.parquet": "cannot read",
    "truncated.parquet": "cannot read",
    "flipped bits.parquet": "cannot read",
    "empty.parquet": "cannot read",
    "claims an endless footer.parquet": "smaller than the size reported by footer",
    "claims no footer.parquet": "cannot read",
    "cut footer.parquet": "cannot read",
    "names not utf-8.parquet": "cannot read .*'utf-8' codec",
    "folder.csv": "no images .* and no audio files",
    "pipe.csv": "neither a file nor a folder",
    "link to itself.csv": "no data set or file",
    "broken link.csv": "no data set or file",
    "two\nlines.csv": r"two\\nlines.csv .*Expected 3 columns",
    os.fsdecode(b"bad and not utf-8 \xff\xfe.csv"): r"bad and not utf-8 \\udcff\\udcfe.csv .*Expected 3 columns",
}


@pytest.mark.parametrize("name", corpus.TABLES, ids=ascii)
def test_bad_tables_are_rejected_by_name_and_unusual_ones_are_accepted(tmp_path, name):
    corpus.TABLES[name](tmp_path / name)
    label = ["--label", "label"] if "label" in name or "class" in name else []
    result = pretrain(tmp_path / name, *QUICK_ROWS, *label, folder=tmp_path)
    check_result(result, tmp_path / "run")
    assert result.code == (EXIT_BAD_INPUT if name in REFUSED_TABLES else 0), result.stderr
    assert re.search(REFUSED_TABLES.get(name, ""), result.stderr), result.stderr


ACCEPTED_ARRAYS = ("constant.npy", "large.npy", "half precision.npy", "big endian.npy", "one class.npz")
ACCEPTED_ARRAYS += ("path traversal.npz", "negative labels.npz")


@pytest.mark.parametrize("name", corpus.ARRAYS, ids=ascii)
def test_bad_arrays_are_rejected_and_unusual_ones_are_accepted(tmp_path, name):
    corpus.ARRAYS[name](tmp_path / name)
    before = sorted(tmp_path.parent.iterdir())
    result = pretrain(tmp_path / name, *QUICK_ROWS, folder=tmp_path)
    check_result(result, tmp_path / "run")
    assert result.code == (0 if name in ACCEPTED_ARRAYS else EXIT_BAD_INPUT), result.stderr
    assert sorted(tmp_path.parent.iterdir()) == before, "an archive wrote outside of its folder"


def test_names_in_the_expectations_are_names_of_files():
    assert REFUSED_TABLES.keys() <= corpus.TABLES.keys()
    assert set(ACCEPTED_ARRAYS) <= corpus.ARRAYS.keys()


def test_broken_images_in_a_folder_are_skipped_and_unusual_ones_are_accepted(tmp_path):
    folder = tmp_path / "images"
    for label in ("cats", "dogs"):
        (folder / label).mkdir(parents=True)
        for i in range(6):
            corpus.write_image(folder / label / f"{i}.png", seed=i)
    for name, create in corpus.UNUSUAL_IMAGES.items():
        create(folder / "cats" / name)
    (folder / "cats" / "link to the parent").symlink_to(folder)
    (folder / "cats" / "link to itself.png").symlink_to("link to itself.png")
    os.mkfifo(folder / "dogs" / "pipe.png")
    broken = dict(list(corpus.BROKEN_IMAGES.items())[:5])
    for name, create in broken.items():
        create(folder / "dogs" / name)
    result = pretrain(folder, *QUICK, folder=tmp_path)
    check_result(result, tmp_path / "run")
    assert result.code == 0, result.stderr
    messages = [line for line in result.stderr.splitlines() if line.startswith("skipped ")]
    assert [sum(name in line for line in messages) for name in broken] == [1] * 5, "each file is named once"
    n_good = 12 + len(corpus.UNUSUAL_IMAGES)
    assert f"skipped 5 of {n_good + 5} images" in messages
    result = run_command("embed", tmp_path / "run", folder, "--out", tmp_path / "z.csv", folder=tmp_path)
    assert result.code == 0 and f"{n_good} vectors" in result.stdout
    result = run_command("evaluate", tmp_path / "run", "--protocol", "knn", folder=tmp_path)
    assert result.code == 0, result.stderr


@pytest.mark.parametrize("kind", ["images", "audio files"])
def test_every_broken_file_is_rejected_and_many_of_them_stop_the_run(tmp_path, kind):
    broken = corpus.BROKEN_IMAGES if kind == "images" else corpus.BROKEN_AUDIO
    (tmp_path / "all").mkdir()
    for name, create in broken.items():
        (tmp_path / name).mkdir()
        create(tmp_path / name / name)
        with pytest.raises(InputError, match=rf"none of the 1 {kind} can be decoded"):
            load(tmp_path / name)
        create(tmp_path / "all" / name)
    result = pretrain(tmp_path / "all", *QUICK, folder=tmp_path)
    check_result(result, tmp_path / "run")
    assert re.search(rf"imix: 6 {kind} cannot be decoded; the last is '.*'", result.stderr), result.stderr


def test_broken_audio_files_are_skipped_and_unusual_ones_are_accepted(tmp_path):
    folder = tmp_path / "audio"
    folder.mkdir()
    for i in range(4):
        corpus.write_audio(folder / f"{i}.wav", 4000 + i)
    for name, create in corpus.UNUSUAL_AUDIO.items():
        create(folder / name)
    corpus.BROKEN_AUDIO["zero length.wav"](folder / "zero length.wav")
    result = pretrain(folder, *QUICK, "--seconds", 0.5, folder=tmp_path)
    check_result(result, tmp_path / "run")
    assert result.code == 0, result.stderr
    assert re.search(r"skipped '.*zero length.wav': the file is empty", result.stderr)
    assert f"skipped 1 of {len(corpus.UNUSUAL_AUDIO) + 5} audio files" in result.stderr


# --- many classes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [20_000, *([1_000_000] if LONG else [])])
def test_data_with_one_class_per_row(tmp_path, n):
    labels = np.random.default_rng(0).permutation(n)
    x = np.stack([labels % 7, labels % 11], 1).astype(np.float32)
    np.savez(tmp_path / "many.npz", x=x, y=labels, x_test=x[:500], y_test=labels[:500])
    options = ["--epochs", 1, "--device", "cpu", "--encoder", "mlp:8-8", "--batch-size", 1024]
    result = pretrain(tmp_path / "many.npz", *options, folder=tmp_path)
    assert result.code == 0, result.stderr
    if n < 1_000_000:
        return
    for protocol, code in (("linear", EXIT_BAD_INPUT), ("pinv", 0), ("knn", 0)):
        result = run_command("evaluate", tmp_path / "run", "--protocol", protocol, folder=tmp_path, timeout=600)
        assert result.code == code, result.stderr


def test_more_classes_than_fit_in_memory_are_rejected(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 1)
    x, y = torch.randn(60, 4), torch.arange(60) % 3
    run = imix.pretrain(x, QUICK_SETTINGS, progress=False)
    for protocol in ("linear", "knn", "pinv", "linear-paper"):
        with pytest.raises(InputError, match=r"of 3 classes would take .* GB of memory"):
            imix.evaluate(run, x, protocol, labels=y)


def test_knn_accuracy_does_not_depend_on_the_chunk_size(monkeypatch):
    x, y = torch.randn(90, 4), torch.arange(90) % 3
    run = imix.pretrain(x, QUICK_SETTINGS, progress=False)
    expected = imix.evaluate(run, x, "knn", labels=y).value
    monkeypatch.setattr("imix.probes.features.MAX_SCORES", 7)
    assert imix.evaluate(run, x, "knn", labels=y).value == expected


@pytest.mark.parametrize("row", [5, 30, 49])
def test_an_unclosed_quote_is_rejected_and_loses_no_rows(tmp_path, row):
    rows = [f"{i},word {i % 3}" for i in range(50)]
    rows[row] = f'{row},"word'
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows, ""]))
    with pytest.raises(InputError, match=f"a quote in row {row + 1} is never closed"):
        load(tmp_path / "t.csv")
    rows[row] = f'{row},"two\nlines"'
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows, ""]))
    assert len(load(tmp_path / "t.csv").train) == 50


# --- fuzzing ----------------------------------------------------------------------------------------------------------

FUZZED = settings(
    max_examples=3000 if LONG else 120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CELLS = st.one_of(
    st.sampled_from(["", "1", "-2.5", "1e400", "nan", "inf", "NA", "true", "2020-01-01", "0x10", "é", '"', '""', "\0"]),
    st.sampled_from(["1,5", "-2,5e3", ",5", "1,", "1.234,5", "03/12/2021", "2020-01-01T00:00Z"]),
    st.text(max_size=6),
    st.floats(allow_nan=True).map(str),
    st.integers().map(str),
)


def check_load(path: Path, **data_settings: object) -> None:
    """Assert that loading a file returns finite numbers or raises InputError."""
    try:
        data = load(path, DataSettings(**data_settings))
    except InputError:
        return
    for source in (data.train, data.test):
        if source is not None:
            x = source.sample(len(source))
            assert x.isfinite().all() if x.is_floating_point() else True


@FUZZED
@given(rows=st.lists(st.lists(CELLS, max_size=4), max_size=8), delimiter=st.sampled_from(",;\t|"))
def test_random_cells_load_as_finite_numbers_or_are_rejected(tmp_path, rows, delimiter):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(delimiter.join(row) for row in rows), encoding="utf-8", errors="surrogateescape")
    check_load(path)
    check_load(path, header="no", standardize="none")


@FUZZED
@given(content=st.binary(max_size=300))
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.npy", "t.npz"])
def test_random_bytes_load_as_finite_numbers_or_are_rejected(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    check_load(tmp_path / name)


@FUZZED
@given(
    values=st.lists(st.one_of(st.none(), st.floats(width=32), st.just(float("nan"))), min_size=1, max_size=30),
    dtype=st.sampled_from([np.float16, np.float32, np.float64, object]),
)
def test_training_on_random_rows_gives_finite_weights_or_is_rejected(values, dtype):
    array = np.array(values, dtype=dtype if dtype is object else np.float64)
    with np.errstate(all="ignore"):
        array = array if dtype is object else array.astype(dtype)
    rows = np.stack([array, array[::-1]], 1)
    training = imix.Settings(epochs=1, batch_size=8, encoder="mlp:8-8", device="cpu")
    try:
        run = imix.pretrain(rows, training, progress=False)
    except (InputError, TrainingError):
        return
    assert all(value.isfinite().all() for value in run.encoder.parameters())


def test_an_error_is_one_line_in_an_ascii_terminal(tmp_path):
    """Runs the real command, not a forked process, with a locale that cannot print the file name."""
    path = tmp_path / "two\nlines é \x1b[2J.npy"
    path.write_bytes(corpus.npy((40, 5), b"too little"))
    result = subprocess.run(
        [sys.executable, "-m", "imix", "pretrain", path, "--out", tmp_path / "run"],
        env=os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
    )
    assert result.returncode == EXIT_BAD_INPUT
    assert result.stderr.count(b"\n") == 1
    assert b"\x1b" not in result.stderr
    assert b"Failed to read all data" in result.stderr
