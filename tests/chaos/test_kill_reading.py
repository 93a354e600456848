"""Processes that are killed while they read data leave nothing in the folder for temporary files."""

import os
import random
import tempfile
import time
from itertools import count

import numpy as np
import polars
import pytest
import torch

from imix import DataSettings
from imix.data import load
from tests.chaos import corpus
from tests.chaos.processes import FORKSERVER, wait_until

N_ROWS = 20_000
TABLE = {f"x{i}": np.random.default_rng(i).normal(size=N_ROWS) for i in range(6)} | {
    "word": ["yes", "no"] * (N_ROWS // 2)
}


def write_csv(path):
    polars.DataFrame(TABLE).write_csv(path)


def write_irregular_csv(path):
    """A file with a blank line, which arrow parses instead of polars."""
    path.write_text(polars.DataFrame(TABLE).write_csv() + "\n\n")


def write_compressed_csv(path):
    polars.DataFrame(TABLE).write_csv(path, compression="gzip")


def write_parquet(path):
    polars.DataFrame(TABLE).write_parquet(path, row_group_size=1000)


def write_folder_of_parquet(path):
    path.mkdir()
    for i in range(3):
        write_parquet(path / f"{i}.parquet")


def write_audio_folder(path):
    path.mkdir()
    for i in range(60):
        corpus.write_audio(path / f"{i}.wav", 40_000)


DATA = {
    "t.csv": write_csv,
    "irregular.csv": write_irregular_csv,
    "t.csv.gz": write_compressed_csv,
    "t.parquet": write_parquet,
    "streamed": write_folder_of_parquet,
    "audio": write_audio_folder,
}


def read_endlessly(path, folder):
    """Read data again and again, with TMPDIR in a folder; audio is decoded each time."""
    os.environ["TMPDIR"] = str(folder / "temporary")
    tempfile.tempdir = None
    for i in count():
        os.environ["IMIX_CACHE"] = str(folder / "cache" / str(i))
        data = load(path, DataSettings(label=None))
        for _ in data.train.batches(torch.arange(len(data.train)).split(1000)):
            pass
        (folder / "has read").touch()


@pytest.mark.parametrize("name", DATA)
def test_a_process_that_is_killed_while_it_reads_leaves_no_temporary_file(tmp_path, name):
    (tmp_path / "temporary").mkdir()
    DATA[name](tmp_path / name)
    rng = random.Random(name)
    for _ in range(3):
        (tmp_path / "has read").unlink(missing_ok=True)
        process = FORKSERVER.Process(target=read_endlessly, args=(tmp_path / name, tmp_path), daemon=True)
        process.start()
        wait_until((tmp_path / "has read").exists)
        time.sleep(rng.uniform(0, 0.2))
        process.kill()
        process.join()
        assert list((tmp_path / "temporary").iterdir()) == []
