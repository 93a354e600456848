"""Runs with the wsd schedule that are made longer."""

from dataclasses import replace

import pytest

import imix
from imix import InputError, files
from imix.run import checkpoint
from tests.train.helpers import SMALL, assert_same_weights, weights

SHORT = replace(SMALL, epochs=5, schedule="wsd", warmup=1, decay=2, method="moco", checkpoint_minutes=60)
LONG = replace(SHORT, epochs=9)


class Stop(Exception):
    pass


def start(table, folder, settings, **options):
    return imix.pretrain(table[0], settings, out=folder, progress=False, **options)


def losses(run):
    return [(record["step"], record["loss"], record["lr"]) for record in run.metrics]


@pytest.fixture
def long(table, tmp_path):
    return start(table, tmp_path / "long", LONG)


def test_a_finished_run_is_made_longer_bit_for_bit(table, tmp_path, long, capsys):
    start(table, tmp_path / "run", SHORT)
    resumed = start(table, tmp_path / "run", LONG, resume=True)
    assert "continuing from epoch 3" in capsys.readouterr().err
    assert_same_weights(weights(long), weights(resumed))
    assert losses(long) == losses(resumed)
    assert resumed.settings == imix.load_run(tmp_path / "run").settings == LONG
    for name in ("checkpoint.pt", "before_decay.pt"):
        first, second = (checkpoint.load(tmp_path / folder / name) for folder in ("long", "run"))
        assert_same_weights(first["learner"], second["learner"])
    longest = start(table, tmp_path / "run", replace(LONG, epochs=12), resume=True)
    assert losses(longest) == losses(start(table, None, replace(LONG, epochs=12)))


@pytest.mark.parametrize("stop", [2, 3, 4, 5])
def test_a_stopped_run_is_made_longer_from_before_the_decay(table, tmp_path, long, stop):
    def fail(state):
        if state.epoch == stop:
            raise Stop

    with pytest.raises(Stop):
        start(table, tmp_path / "run", replace(SHORT, checkpoint_minutes=0), on_epoch=fail)
    resumed = start(table, tmp_path / "run", LONG, resume=True)
    assert_same_weights(weights(long), weights(resumed))
    assert losses(long) == losses(resumed)


@pytest.mark.parametrize("step", range(4))
def test_a_run_that_is_killed_while_it_is_made_longer_stays_readable_and_can_be_made_longer(
    table, tmp_path, long, monkeypatch, step
):
    start(table, tmp_path / "run", SHORT)
    files.write_jsonl(tmp_path / "run" / "evaluations.jsonl", [])
    original, written = files.write_atomically, []

    def write_then_die(path, *arguments):
        original(path, *arguments)
        written.append(path.name)
        if len(written) > step:
            raise Stop

    with monkeypatch.context() as patch:
        for module in (files, checkpoint):
            patch.setattr(module, "write_atomically", write_then_die)
        with pytest.raises(Stop):
            start(table, tmp_path / "run", LONG, resume=True)
    assert written == ["evaluations.jsonl", "encoder.safetensors", "checkpoint.pt", "config.json"][: step + 1]
    expected = "epoch 5 of 5, step 20 of 20" if step else None
    assert imix.load_run(tmp_path / "run").progress == expected
    assert_same_weights(weights(long), weights(start(table, tmp_path / "run", LONG, resume=True)))


def test_results_of_the_shorter_run_do_not_count_for_the_longer_one(tmp_path):
    settings = replace(SHORT, batch_size=256)
    run = imix.pretrain("digits", settings, out=tmp_path / "run", progress=False)
    imix.evaluate(run, protocol="knn", device="cpu")
    longer = imix.pretrain("digits", replace(settings, epochs=9), out=tmp_path / "run", resume=True, progress=False)
    assert longer.evaluations == []
    assert files.read_jsonl(tmp_path / "run" / "evaluations.jsonl")[0]["progress"] == "epoch 5 of 5, step 25 of 25"


def test_what_cannot_be_made_longer_is_rejected(table, tmp_path):
    start(table, tmp_path / "run", SHORT)
    with pytest.raises(InputError, match="epochs was 5, now it is 4"):
        start(table, tmp_path / "run", replace(SHORT, epochs=4), resume=True)
    (tmp_path / "run" / "before_decay.pt").unlink()
    with pytest.raises(InputError, match="no checkpoint from before the decay"):
        start(table, tmp_path / "run", LONG, resume=True)
    start(table, tmp_path / "warmup", replace(SHORT, warmup=None))
    with pytest.raises(InputError, match="its warmup of 2 epochs would be 4 epochs"):
        start(table, tmp_path / "warmup", replace(LONG, warmup=None), resume=True)
    start(table, tmp_path / "cosine", replace(SHORT, schedule="cosine"))
    with pytest.raises(InputError, match=r"`schedule='wsd'` allows more epochs"):
        start(table, tmp_path / "cosine", replace(LONG, schedule="cosine"), resume=True)
