"""The paper's tables and figures have the paper's numbers and settings."""

import pytest
import torch

from imix import encoders
from imix.reproduce.experiment import Number
from imix.reproduce.jobs import estimate_hours, list_jobs
from imix.reproduce.recipes import PAPER_NUMBERS
from imix.reproduce.requests import EXPERIMENTS, select_requests
from tests.reproduce.helpers import NAMES, find_cell


def test_every_table_and_figure_of_the_paper_is_present():
    assert tuple(EXPERIMENTS) == NAMES
    counts = {name: len(EXPERIMENTS[name].cells) for name in NAMES}
    assert counts["table1"] == 24 and counts["table2"] == 8 and counts["table4a"] == 8 and counts["table4b"] == 6
    assert counts["table3"] == 24 + 2  # the text also gives i-Mix without InputMix for both CIFARs
    assert counts["tableC1"] == counts["tableC2"] == counts["tableC3"] == 24
    assert counts["supervised"] == 6 and counts["figureC1"] == 4


@pytest.mark.parametrize(
    ("name", "row", "column", "number"),
    [
        ("table1", "CIFAR-10", "N-pair + i-Mix", (95.6, 0.2)),
        ("table1", "CIFAR-100", "BYOL", (72.7, 0.4)),
        ("table1", "Speech Commands", "MoCo v2", (96.3, 0.1)),
        ("table1", "CovType", "BYOL + i-Mix", (74.1, 0.2)),
        ("table2", "ImageNet-100", "MoCo v2 + i-Mix", (87.0, None)),
        ("table2", "Higgs1M", "MoCo v2", (74.9, None)),
        ("table3", "CIFAR-10, no augmentation", "MoCo v2 + i-Mix", (83.4, 0.4)),
        ("table3", "CIFAR-100, no augmentation", "MoCo v2 + i-Mix, no InputMix", (50.7, None)),
        ("table3", "Speech Commands, no augmentation", "MoCo v2", (76.9, 1.7)),
        ("table3", "Higgs100k, no augmentation", "MoCo v2 + i-Mix", (71.8, None)),
        ("table4a", "CIFAR-100 → CIFAR-10", "MoCo v2 + i-Mix", (90.0, 0.4)),
        ("table4b", "AP75", "MoCo v2 + i-Mix", (64.2, 0.7)),
        ("tableC1", "CIFAR-10 → CIFAR-100", "SimCLR + i-CutMix", (57.1, 0.4)),
        ("tableC1", "CIFAR-100 → CIFAR-100", "N-pair + i-MixUp", (72.3, 0.2)),
        ("tableC2", "CIFAR-10 → CIFAR-10", "supervised N-pair + i-Mix", (97.0, 0.1)),
        ("tableC2", "CIFAR-100 → CIFAR-10", "supervised SimCLR", (86.5, 0.4)),
        ("tableC3", "CIFAR-10 → CIFAR-100", "FED, N-pair + i-Mix", (7.9, None)),
        ("tableC3", "CIFAR-100 → CIFAR-100", "training, N-pair", (85.6, None)),
        ("supervised", "CIFAR-100", "classifier + MixUp", (82.2, None)),
    ],
)
def test_cells_have_the_papers_numbers(name, row, column, number):
    assert find_cell(name, row, column).paper == Number(*number)


def test_all_numbers_of_the_paper_belong_to_a_cell():
    cells = {(name, cell.label, cell.column) for name in NAMES for cell in EXPERIMENTS[name].cells}
    assert set(PAPER_NUMBERS) <= cells


@pytest.mark.parametrize(
    ("name", "row", "column", "settings"),
    [
        ("table1", "CIFAR-10", "N-pair", {"epochs": 2000, "mix": "none", "temperature": 0.2, "encoder": "resnet50"}),
        ("table1", "CIFAR-10", "N-pair + i-Mix", {"epochs": 4000, "mix": "mixup", "alpha": 1.0, "weight_decay": 1e-4}),
        ("table1", "CIFAR-100", "BYOL + i-Mix", {"epochs": 4000, "momentum": 0.999, "symmetric": False}),
        (
            "table1",
            "Speech Commands",
            "BYOL",
            {"head": "mlpbn", "predictor": "mlpbn1", "temperature": 0.5, "milestones": (300, 400), "schedule": "step"},
        ),
        ("table1", "CovType", "N-pair + i-Mix", {"masking": 0.2, "alpha": 2.0, "temperature": 0.1, "batch_size": 512}),
        ("table1", "CovType", "MoCo v2 + i-Mix", {"masking": 0.0, "augment_columns": ("numeric",), "head": "mlpbn"}),
        ("table1", "CovType", "MoCo v2", {"masking": 0.2, "epochs": 500, "queue": 4096}),
        (
            "table2",
            "ImageNet-1k",
            "MoCo v2 + i-Mix",
            {"mix": "cutmix", "queue": 65536, "lr": 0.03, "batch_size": 512, "epochs": 800, "head": "mlp"},
        ),
        ("table2", "Higgs100k", "MoCo v2 + i-Mix", {"alpha": 1.0, "encoder": "mlp:bn", "masking": 0.2}),
        ("table3", "CIFAR-10, no augmentation", "MoCo v2 + i-Mix", {"input_mix": 2, "epochs": 1000, "augment": "none"}),
        ("table3", "CIFAR-100, no augmentation", "MoCo v2", {"input_mix": 0, "epochs": 1000}),
        ("table3", "Speech Commands, no augmentation", "MoCo v2 + i-Mix", {"temperature": 0.2, "augment": "none"}),
        ("tableC1", "CIFAR-10 → CIFAR-10", "SimCLR + i-CutMix", {"batch_size": 128, "mix": "cutmix", "epochs": 1000}),
        ("tableC1", "CIFAR-10 → CIFAR-10", "SimCLR", {"batch_size": 256}),
        ("tableC2", "CIFAR-10 → CIFAR-10", "supervised N-pair", {"method": "supnpair"}),
    ],
)
def test_cells_have_the_papers_settings(name, row, column, settings):
    used = find_cell(name, row, column).training.settings
    assert {key: getattr(used, key) for key in settings} == settings


@pytest.mark.parametrize("name", NAMES)
def test_short_budget_has_the_papers_columns_and_a_description(name):
    experiment = EXPERIMENTS[name]
    assert experiment.short_description
    assert {cell.column for cell in experiment.short_cells} == {cell.column for cell in experiment.cells}
    assert sum(map(estimate_hours, list_jobs(select_requests([name], "short")))) <= 1.0


@pytest.mark.parametrize("encoder", ["resnet18", "resnet50", "resnet101", "resnet152", "mlp", "mlp:bn"])
def test_every_encoder_can_be_built(encoder):
    used = {job.training.settings.encoder for job in list_jobs(select_requests(["all"], "paper"))}
    assert encoder in used
    assert used <= {"resnet18", "resnet50", "resnet101", "resnet152", "mlp", "mlp:bn"}
    with torch.device("meta"):
        encoders.build(encoder, (28,) if encoder.startswith("mlp") else (3, 32, 32), (28,) if ":" in encoder else ())
