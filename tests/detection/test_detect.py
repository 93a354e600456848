"""`imix.detection.detect` on pretraining runs."""

import json

import numpy as np
import pytest
import torch

import imix
from imix import InputError
from imix.detection import detect
from imix.detection.finetune import CHECKPOINT
from imix.files import read_jsonl
from imix.run.result import Result, Split
from tests.detection.helpers import TINY, NarrowResNet


@pytest.mark.slow
def test_the_encoder_of_a_run_is_copied_and_the_result_is_saved(shapes, tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (16, 3, 32, 32), dtype=np.uint8)
    settings = imix.Settings(epochs=1, batch_size=8, device="cpu")
    run = imix.pretrain(x, settings, encoder=NarrowResNet(), out=tmp_path / "run", progress=False)
    before = {name: value.clone() for name, value in run.encoder.state_dict().items()}
    result = detect(run, shapes, TINY, device="cpu", progress=False)
    assert all(torch.equal(value, before[name]) for name, value in run.encoder.state_dict().items())
    record = read_jsonl(run.path / "evaluations.jsonl")[-1]
    assert json.loads(json.dumps(result.to_json())) == record
    assert record["protocol"] == "detection" and record["hyperparameters"]["iterations"] == 4
    assert record["metrics"].keys() == {"ap", "ap50", "ap75"} and record["details"]["per_class"]
    assert not (run.path / CHECKPOINT).exists()


def test_average_precision_is_printed_in_percent():
    metrics = {"ap": 0.5, "ap50": 0.75, "ap75": 0.25}
    result = Result("detection", "voc", metrics, {"iterations": 4}, Split(8, 4), details={"per_class": {}})
    expected = "detection on voc: 50.00% (ap50: 75.00%; ap75: 25.00%)\n  iterations 4, train 8, test 4"
    assert str(result) == expected


def test_a_run_without_a_resnet_is_rejected(shapes):
    run = imix.pretrain("digits", imix.Settings(epochs=1, batch_size=64, device="cpu"), progress=False)
    with pytest.raises(InputError, match=r"detection needs a ResNet .*; the run's encoder is small"):
        detect(run, shapes)
