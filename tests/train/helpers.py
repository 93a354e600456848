"""Shared helpers of the training tests."""

import os
import subprocess
import sys
import time

import torch

from imix import Settings
from imix.data import Source

SMALL = Settings(epochs=3, batch_size=16, encoder="mlp:16-16", device="cpu", checkpoint_minutes=0, queue=40)


METHODS = ["npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised"]


def weights(run):
    return {name: value.clone() for name, value in run.encoder.state_dict().items()}


def assert_same_weights(a, b):
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


class Streaming(Source):
    """Rows that are not kept in memory; `missing` batches of an epoch, or samples of a batch, are not returned."""

    def __init__(self, rows, missing="", labels=None):
        self.rows, self.missing, self.labels = rows, missing, labels

    def __len__(self):
        return len(self.rows)

    def batches(self, rows):
        for at, chosen in enumerate(rows):
            if self.missing == "batches" and at and len(rows) > 1:
                return
            yield self.rows[chosen[1:] if self.missing == "samples" and len(chosen) > 2 else chosen], None

    def to(self, device):
        return self

    def take(self, rows):
        return Streaming(self.rows[rows], self.missing)


def cli(*arguments, **options):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "imix", *map(str, arguments)],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def wait_for_metrics(folder, lines):
    path = folder / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text().count("\n") >= lines):
        assert time.monotonic() < deadline, "the run wrote no metrics"
        time.sleep(0.02)


def command(folder):
    return ["pretrain", "digits", "--out", folder, "--epochs", 30, "--encoder", "mlp:32-32", "--checkpoint-minutes", 0]
