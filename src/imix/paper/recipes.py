"""The settings behind the paper's numbers, by data set, as the authors' code has them; and shorter ones.

Where paper and code differ, the code is followed, since the numbers were made with it; docs/paper.md tells where.
"""

from collections.abc import Iterable
from typing import Any

from imix.paper.experiment import Cell, Number, Training, changed
from imix.settings import Reading, Settings

CIFAR: dict[str, Any] = {"encoder": "resnet50"}
IMAGENET: dict[str, Any] = {
    "encoder": "resnet50",
    "batch_size": 512,
    "lr": 0.03,
    "head": "mlp",
    "queue": 65_536,
    "epochs": 800,
}
TABLE: dict[str, Any] = {
    "encoder": "mlp",
    "head": "mlpbn",
    "temperature": 0.1,
    "batch_size": 512,
    "epochs": 500,
    "masking": 0.2,
}
SPEECH: dict[str, Any] = {
    "encoder": "resnet50",
    "head": "mlpbn",
    "predictor": "mlpbn1",
    "temperature": 0.5,
    "schedule": "step",
    "milestones": (300, 400),
    "epochs": 500,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "cifar10": CIFAR,
    "cifar100": CIFAR,
    "imagenet": IMAGENET,
    "imagenet100": IMAGENET,
    "speech_commands": SPEECH,
    "covtype": TABLE | {"alpha": 2.0, "augment_columns": ("numeric",)},
    "higgs100k": TABLE | {"encoder": "mlp:bn"},
    "higgs1m": TABLE | {"encoder": "mlp:bn"},
}
STANDARDISED_BY_ALL = ("covtype", "higgs100k", "higgs1m")
IMAGES = ("cifar10", "cifar100", "imagenet", "imagenet100")

# With fewer steps, a decay of 1e-4 would hardly act on the weights and a momentum of 0.999 would keep the keys behind.
SHORT_CIFAR: dict[str, Any] = {"encoder": "resnet18", "epochs": 200, "weight_decay": 5e-4, "momentum": 0.99}
SHORT_IMAGENET: dict[str, Any] = {"encoder": "resnet18", "epochs": 50, "weight_decay": 5e-4, "momentum": 0.99}
SHORT: dict[str, dict[str, Any]] = {
    "cifar10": SHORT_CIFAR,
    "cifar100": SHORT_CIFAR,
    "imagenet": SHORT_IMAGENET,
    "imagenet100": SHORT_IMAGENET,
    "speech_commands": {
        "encoder": "resnet18",
        "epochs": 110,
        "weight_decay": 1e-3,
        "momentum": 0.99,
        "milestones": (),
    },
    "covtype": {},
    "higgs100k": {"epochs": 100},
    "higgs1m": {"epochs": 20},
}
SHORT_READING: dict[str, dict[str, Any]] = {
    "imagenet": {"image_size": 64, "fraction": 0.1},
    "imagenet100": {"image_size": 64},
}

ROWS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet": "ImageNet-1k",
    "imagenet100": "ImageNet-100",
    "speech_commands": "Speech Commands",
    "covtype": "CovType",
    "higgs100k": "Higgs100k",
    "higgs1m": "Higgs1M",
}


def training(data: str, method: str, mix: str = "none", fraction: float = 1.0, **settings: Any) -> Training:
    """A training of the paper: the data set's recipe, and what is said of it."""
    reading = Reading(standardise="all" if data in STANDARDISED_BY_ALL else "train", fraction=fraction)
    if method == "simclr" and mix != "none":
        settings = {"batch_size": 128} | settings  # as much memory as without
    return Training(data, Settings(**(SETTINGS[data] | {"method": method, "mix": mix} | settings)), reading)


def number(paper: tuple[float, ...] | float | None) -> Number | None:
    """What the paper got."""
    return None if paper is None else Number(*paper) if isinstance(paper, tuple) else Number(paper)


def measured(data: str) -> str:
    """How accuracy is measured on a data set."""
    return "pinv" if data.startswith("higgs") else "linear"


def shortened(cells: Iterable[Cell], **settings: Any) -> tuple[Cell, ...]:
    """Cells at the length of a few minutes."""
    return tuple(
        changed(cell, SHORT[cell.training.data] | settings, SHORT_READING.get(cell.training.data, {})) for cell in cells
    )
