"""Bad data, through the command line: a clear error or a named skip; never a traceback, a hang or silent garbage."""

import os
import re
import subprocess
import sys
from pathlib import Path

import corpus
import numpy as np
import pytest
import torch
from harm import LONG, Said, command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import imix
from imix import InputError, Reading, TrainingError
from imix.data import load

QUICK = ["--epochs", 1, "--device", "cpu", "--batch-size", 8]
ROWS = [*QUICK, "--encoder", "mlp:8-8"]
BAD_INPUT = 2


def pretrain(path: Path, *more: object, folder: Path, seconds: float = 60) -> Said:
    cache = {"IMIX_CACHE": str(folder / "cache")}
    words = ["pretrain", path, "--out", folder / "run", *more]
    return command(*words, folder=folder, timeout=seconds, environment=cache)


def check_told(said: Said, run: Path) -> None:
    """It worked, and all that came of it are numbers; or it was refused, in one last line."""
    assert "Traceback" not in said.err, said.err
    assert said.code in (0, BAD_INPUT), said.err
    if said.code == 0:
        weights = imix.load_encoder(run).state_dict().values()
        assert all(value.isfinite().all() for value in weights if value.is_floating_point())
    else:
        last = said.err.splitlines()[-1]
        assert re.fullmatch(r"imix: .+", last), said.err
        assert last.isprintable(), "names must not speak to the terminal"
        assert len(last) < 1500
        assert not run.exists()


# What each file must be refused for; what is not here is taken.
REFUSED = {
    "empty.csv": "no columns",
    "blank lines.csv": "no columns",
    "header alone.csv": "no rows",
    "one row.csv": "at least 2",
    "rows too long.csv": "Expected 2 columns, got 3",
    "rows too short.csv": "Expected 3 columns, got 2",
    "quote not closed.csv": "a quote in row 1 is never closed",
    "latin-1.csv": "UTF-8",
    "utf-16.csv": "UTF-8",
    "utf-16 without mark.csv": "Expected 3 columns",
    "bytes of zero.csv": "Expected 3 columns",
    "random bytes.csv": "UTF-8",
    "a huge name.csv": "field larger",
    "infinite.csv": "column 'a' .*2 infinite values, the first in row 20",
    "too large.csv": "column 'b' .*infinite|too large",
    "all missing.csv": "no column to learn from",
    "twice the same name.csv": "several columns called 'a'",
    "names without names.csv": "several columns called ''",
    "no label.csv": "has no values",
    "label of fractions.csv": "has fractions",
    "cut short.csv.gz": "Truncated",
    "no gzip.csv.gz": "incorrect header",
    "wrong checksum.csv.gz": "incorrect data",
    "no parquet.parquet": "cannot read",
    "cut short.parquet": "cannot read",
    "bits turned.parquet": "cannot read",
    "empty.parquet": "cannot read",
    "a folder.csv": "no images .* and no sounds",
    "a pipe.csv": "neither a file nor a folder",
    "a circle.csv": "no data set or file",
    "leads nowhere.csv": "no data set or file",
    "two\nlines.csv": r"two\\nlines.csv .*Expected 3 columns",
    os.fsdecode(b"bad no text \xff\xfe.csv"): r"bad no text \\udcff\\udcfe.csv .*Expected 3 columns",
}


@pytest.mark.parametrize("name", corpus.TABLES, ids=ascii)
def test_a_bad_table_is_refused_by_name_and_an_odd_one_taken(tmp_path, name):
    corpus.TABLES[name](tmp_path / name)
    label = ["--label", "label"] if "label" in name or "class" in name else []
    said = pretrain(tmp_path / name, *ROWS, *label, folder=tmp_path)
    check_told(said, tmp_path / "run")
    assert said.code == (BAD_INPUT if name in REFUSED else 0), said.err
    assert re.search(REFUSED.get(name, ""), said.err), said.err


TAKEN_ARRAYS = ("constant.npy", "large.npy", "half precision.npy", "other byte order.npy", "one class.npz")
TAKEN_ARRAYS += ("a way out.npz", "negative labels.npz")


@pytest.mark.parametrize("name", corpus.ARRAYS, ids=ascii)
def test_a_bad_array_is_refused_by_name_and_an_odd_one_taken(tmp_path, name):
    corpus.ARRAYS[name](tmp_path / name)
    before = sorted(tmp_path.parent.iterdir())
    said = pretrain(tmp_path / name, *ROWS, folder=tmp_path)
    check_told(said, tmp_path / "run")
    assert said.code == (0 if name in TAKEN_ARRAYS else BAD_INPUT), said.err
    assert sorted(tmp_path.parent.iterdir()) == before, "an archive wrote outside of its folder"


def test_broken_and_odd_images_in_one_folder(tmp_path):
    folder = tmp_path / "images"
    for kind in ("cats", "dogs"):
        (folder / kind).mkdir(parents=True)
        for number in range(6):
            corpus.picture(folder / kind / f"{number}.png", seed=number)
    for name, make in corpus.ODD_PICTURES.items():
        make(folder / "cats" / name)
    (folder / "cats" / "round").symlink_to(folder)
    (folder / "cats" / "itself.png").symlink_to("itself.png")
    os.mkfifo(folder / "dogs" / "a pipe.png")
    broken = dict(list(corpus.BROKEN_PICTURES.items())[:5])
    for name, make in broken.items():
        make(folder / "dogs" / name)
    said = pretrain(folder, *QUICK, folder=tmp_path)
    check_told(said, tmp_path / "run")
    assert said.code == 0, said.err
    left = [line for line in said.err.splitlines() if line.startswith("left out ")]
    assert [sum(name in line for line in left) for name in broken] == [1] * 5, "each is named once"
    assert f"5 of {12 + len(corpus.ODD_PICTURES) + 5} images were left out" in said.err
    said = command("embed", tmp_path / "run", folder, "--out", tmp_path / "z.csv", folder=tmp_path)
    assert said.code == 0 and f"{12 + len(corpus.ODD_PICTURES)} vectors" in said.out
    said = command("evaluate", tmp_path / "run", "--protocol", "knn", folder=tmp_path)
    assert said.code == 0, said.err


@pytest.mark.parametrize("kind", ["pictures", "sounds"])
def test_every_broken_file_alone_is_left_out_by_name_and_many_stop_the_run(tmp_path, kind):
    broken = corpus.BROKEN_PICTURES if kind == "pictures" else corpus.BROKEN_SOUNDS
    for name, make in broken.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name / name)
        with pytest.raises(InputError, match=r"none of the 1 .* can be decoded"):
            load(tmp_path / name)
        (tmp_path / "all").mkdir(exist_ok=True)
        make(tmp_path / "all" / name)
    said = pretrain(tmp_path / "all", *QUICK, folder=tmp_path)
    check_told(said, tmp_path / "run")
    assert re.search(r"imix: 6 (images|sounds) cannot be decoded; the last is '.*'", said.err)


def test_odd_sounds_are_taken_and_broken_ones_left_out(tmp_path):
    folder = tmp_path / "sounds"
    folder.mkdir()
    for number in range(4):
        corpus.sound(folder / f"{number}.wav", 4000 + number)
    for name, make in corpus.ODD_SOUNDS.items():
        make(folder / name)
    corpus.BROKEN_SOUNDS["of no length.wav"](folder / "of no length.wav")
    said = pretrain(folder, *QUICK, "--seconds", 0.5, folder=tmp_path)
    check_told(said, tmp_path / "run")
    assert said.code == 0, said.err
    assert re.search(r"left out '.*of no length.wav': it is empty", said.err)
    assert f"1 of {len(corpus.ODD_SOUNDS) + 5} sounds were left out" in said.err


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [20_000, *([1_000_000] if LONG else [])])
def test_a_class_for_each_of_very_many_rows(tmp_path, classes):
    numbers = np.random.default_rng(0).permutation(classes)
    x, some = np.stack([numbers % 7, numbers % 11], 1).astype(np.float32), slice(500)
    np.savez(tmp_path / "many.npz", x=x, y=numbers, x_test=x[some], y_test=numbers[some])
    said = pretrain(tmp_path / "many.npz", *QUICK[:4], "--encoder", "mlp:8-8", "--batch-size", 1024, folder=tmp_path)
    assert said.code == 0, said.err
    if classes < 1_000_000:
        return
    for protocol, code in (("linear", BAD_INPUT), ("pinv", 0), ("knn", 0)):
        said = command("evaluate", tmp_path / "run", "--protocol", protocol, folder=tmp_path, timeout=600)
        assert said.code == code, said.err


def test_more_classes_than_memory_are_refused(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 1)
    x, y = torch.randn(60, 4), torch.arange(60) % 3
    run = imix.pretrain(x, imix.Settings(epochs=1, batch_size=16, encoder="mlp:8-8", device="cpu"), progress=False)
    for protocol in ("linear", "pinv"):
        with pytest.raises(InputError, match=r"of 3 classes would take .* GB of memory"):
            imix.evaluate(run, x, protocol, labels=y)
    assert imix.evaluate(run, x, "knn", labels=y).value >= 0


def test_neighbours_are_the_same_however_many_classes_are_held_at_a_time(monkeypatch):
    x, y = torch.randn(90, 4), torch.arange(90) % 3
    run = imix.pretrain(x, imix.Settings(epochs=1, batch_size=16, encoder="mlp:8-8", device="cpu"), progress=False)
    whole = imix.evaluate(run, x, "knn", labels=y).value
    monkeypatch.setattr("imix.evaluation.features.MOST_VOTES", 7)
    assert imix.evaluate(run, x, "knn", labels=y).value == whole


@pytest.mark.parametrize("opened", [5, 30, 49])
def test_a_quote_that_is_never_closed_swallows_no_rows(tmp_path, opened):
    rows = [f"{i},word {i % 3}" for i in range(50)]
    rows[opened] = f'{opened},"word'
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows, ""]))
    with pytest.raises(InputError, match=f"a quote in row {opened + 1} is never closed"):
        load(tmp_path / "t.csv")
    rows[opened] = f'{opened},"two\nlines"'
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows, ""]))
    assert len(load(tmp_path / "t.csv").train) == 50


# --- fuzzed ----------------------------------------------------------------------------------------------------------

MANY = settings(
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


def survives(path: Path, **reading: object) -> None:
    """Reading gives finite numbers or an InputError that names something."""
    try:
        data = load(path, Reading(**reading))
    except InputError:
        return
    for part in (data.train, data.test):
        if part is not None:
            x = part.sample(len(part))
            assert x.isfinite().all() if x.is_floating_point() else True


@MANY
@given(rows=st.lists(st.lists(CELLS, max_size=4), max_size=8), delimiter=st.sampled_from(",;\t|"))
def test_any_cells_make_numbers_or_an_error(tmp_path, rows, delimiter):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(delimiter.join(row) for row in rows), encoding="utf-8", errors="surrogateescape")
    survives(path)
    survives(path, header="no", standardise="none")


@MANY
@given(content=st.binary(max_size=300))
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.npy", "t.npz"])
def test_any_bytes_make_numbers_or_an_error(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    survives(tmp_path / name)


@MANY
@given(data=st.data())
@pytest.mark.parametrize("name", ["good.csv", "good.parquet", "good.npy", "good.npz", "good.csv.gz"])
def test_a_good_file_with_some_bytes_changed_makes_numbers_or_an_error(tmp_path, name, data):
    path = tmp_path / name
    {
        "good.csv": corpus.text(corpus.GOOD),
        "good.parquet": lambda path: corpus._parquet(path, lambda content: content),
        "good.npy": lambda path: np.save(path, corpus.X),
        "good.npz": lambda path: np.savez(path, x=corpus.X, y=np.arange(40) % 3),
        "good.csv.gz": lambda path: __import__("gzip").open(path, "wt").write(corpus.GOOD),
    }[name](path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    survives(path)


@MANY
@given(
    values=st.lists(st.one_of(st.none(), st.floats(width=32), st.just(float("nan"))), min_size=1, max_size=30),
    kind=st.sampled_from([np.float16, np.float32, np.float64, object]),
)
def test_any_rows_train_or_are_refused(values, kind):
    array = np.array(values, dtype=kind if kind is object else np.float64)
    with np.errstate(all="ignore"):
        array = array if kind is object else array.astype(kind)
    rows = np.stack([array, array[::-1]], 1)
    how = imix.Settings(epochs=1, batch_size=8, encoder="mlp:8-8", device="cpu")
    try:
        run = imix.pretrain(rows, how, progress=False)
    except (InputError, TrainingError):
        return
    assert all(value.isfinite().all() for value in run.encoder.parameters())


def test_a_real_command_in_a_real_terminal_of_ascii_says_it_in_one_line(tmp_path):
    """The one that is not forked: with a locale that cannot print the name."""
    path = tmp_path / "two\nlines é \x1b[2J.npy"
    path.write_bytes(corpus.npy((40, 5), b"too little"))
    said = subprocess.run(
        [sys.executable, "-m", "imix", "pretrain", path, "--out", tmp_path / "run"],
        env=os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
    )
    assert said.returncode == BAD_INPUT
    assert said.stderr.count(b"\n") == 1
    assert b"\x1b" not in said.stderr
    assert b"Failed to read all data" in said.stderr
