"""Runs that are interrupted resume with the same samples in the same order, from every kind of data."""

from dataclasses import replace
from pathlib import Path

import pandas
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import imix
from imix import DataSettings, InputError
from imix.data import datasets
from imix.data.media import images
from imix.run import checkpoint
from tests.data.media.helpers import QUICK, write_image

X = torch.randn(24, 2, 9, generator=torch.Generator().manual_seed(0))


class Stream(IterableDataset):
    """Rows of a tensor."""

    def __init__(self, x=X):
        self.x = x

    def __iter__(self):
        return iter(self.x)


def paths(tmp_path):
    return [str(write_image(tmp_path / f"{i}.png", size=(8, 8))) for i in range(12)]


DATA = {
    "a data set": lambda tmp_path: TensorDataset(X),
    "a loader": lambda tmp_path: DataLoader(TensorDataset(X), num_workers=1, shuffle=True),
    "an iterable": lambda tmp_path: Stream(),
    "paths": paths,
    "a column of paths": lambda tmp_path: pandas.DataFrame({"file": paths(tmp_path)}),
    "bytes": lambda tmp_path: pandas.DataFrame({"file": [Path(path).read_bytes() for path in paths(tmp_path)]}),
}


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", DATA)
def test_an_interrupted_run_resumes_bit_for_bit(kind, streamed, tmp_path, monkeypatch):
    if streamed and kind != "an iterable":
        monkeypatch.setattr(datasets, "MAX_BYTES_IN_MEMORY", 0)
        monkeypatch.setattr(images, "MAX_BYTES_IN_MEMORY", 0)
    data = DATA[kind](tmp_path)
    settings = replace(QUICK, epochs=3, checkpoint_minutes=0.0)
    data_settings = DataSettings(path_column="file" if kind == "a column of paths" else None)

    def start(folder, **options):
        run = imix.pretrain(data, settings, data_settings, out=tmp_path / folder, progress=False, **options)
        return run.encoder.state_dict()

    uninterrupted = start("uninterrupted")
    original, calls = checkpoint.save, []

    def save_then_interrupt(path, state):
        original(path, state)
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save", save_then_interrupt)
        with pytest.raises(KeyboardInterrupt):
            start("stopped")
    resumed = start("stopped", resume=True)
    assert all(torch.equal(resumed[name], uninterrupted[name]) for name in uninterrupted)


def test_an_iterable_that_yields_other_items_is_not_resumed(tmp_path, capsys):
    imix.pretrain(Stream(), QUICK, out=tmp_path / "run")
    assert "read into memory once; to resume the run, it must yield the same items again" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"cannot resume .*: its data was different"):
        imix.pretrain(Stream(X.flip(0)), QUICK, out=tmp_path / "run", resume=True, progress=False)
