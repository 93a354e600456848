"""The tables of the paper, and the supervised classifiers quoted in its text."""

from dataclasses import replace
from itertools import product
from typing import Any

from imix.data.named import DATASETS
from imix.reproduce.experiment import Cell
from imix.reproduce.recipes import build_experiment, recipe_for, training, transfer_row
from imix.settings import METHODS

CIFAR_DESCRIPTION = "ResNet-18, 200 epochs, weight decay 5e-4, key momentum 0.99"
CIFAR_100_EPOCHS_DESCRIPTION = CIFAR_DESCRIPTION.replace("200", "100")
SPEECH_DESCRIPTION = "Speech Commands: ResNet-18, 110 epochs, weight decay 1e-3, key momentum 0.99"
IMAGENET_DESCRIPTION = (
    "ImageNet: 64 pixels, ImageNet-1k with 10% of the images, ResNet-18, 50 epochs, weight decay 5e-4, "
    "key momentum 0.99"
)
HIGGS_DESCRIPTION = "Higgs100k: 100 epochs; Higgs1M: 20 epochs"

CIFAR = ("cifar10", "cifar100")
Pair = tuple[dict[str, Any], dict[str, Any]]  # settings without and with mixing
NO_MASKING = {"masking": 0.0}  # the authors' commands use it for MoCo and BYOL with i-Mix on CovType
SETTINGS: dict[tuple[str, str], Pair] = {  # by data set and method, in addition to the data set's recipe
    ("cifar10", "npair"): ({"epochs": 2000}, {"epochs": 4000}),
    ("cifar10", "moco"): ({"epochs": 1000}, {"epochs": 4000}),
    ("cifar10", "byol"): ({"epochs": 1000}, {"epochs": 2000}),
    ("cifar10", "supervised"): ({"epochs": 1000}, {"epochs": 1000}),
    ("cifar100", "npair"): ({"epochs": 4000}, {"epochs": 2000}),
    ("cifar100", "moco"): ({"epochs": 1000}, {"epochs": 2000}),
    ("cifar100", "byol"): ({"epochs": 1000}, {"epochs": 4000}),
    ("cifar100", "supervised"): ({"epochs": 1000}, {"epochs": 1000}),
    ("covtype", "moco"): ({}, NO_MASKING),
    ("covtype", "byol"): ({}, NO_MASKING),
    ("imagenet100", "moco"): ({}, {"mix": "cutmix"}),
    ("imagenet", "moco"): ({}, {"mix": "cutmix"}),
}
SETTINGS_WITHOUT_AUGMENTATION: dict[str, Pair] = {  # MoCo; by data set
    "cifar10": ({"epochs": 500}, {"epochs": 1000, "input_mix": 2}),
    "cifar100": ({"epochs": 1000}, {"epochs": 500, "input_mix": 2}),
    "speech_commands": ({"temperature": 0.2}, {"temperature": 0.2}),
    "covtype": ({}, {}),
    "higgs100k": ({}, {}),
    "higgs1m": ({}, {}),
}


def pair(data: str, method: str = "moco", settings: Pair | None = None, row: str = "") -> list[Cell]:
    """The accuracy of a method without and with mixing on the data set it was trained on."""
    plain, mixed = settings or SETTINGS.get((data, method), ({}, {}))
    column, mix = METHODS[method], "MixUp" if method == "supervised" else "i-Mix"
    runs = {column: plain, f"{column} + {mix}": {"mix": "mixup"} | mixed}
    return [
        Cell(row or DATASETS[data].title, column, training(data, method, **used), data, recipe_for(data).protocol)
        for column, used in runs.items()
    ]


def without_augmentation(data: str) -> list[Cell]:
    """MoCo without and with mixing, without augmentation."""
    off = NO_MASKING if DATASETS[data].kind == "table" else {"augment": "none"}
    plain, mixed = SETTINGS_WITHOUT_AUGMENTATION[data]
    return pair(data, settings=(off | plain, off | mixed), row=f"{DATASETS[data].title}, no augmentation")


def without_input_mix(data: str) -> Cell:
    """MoCo with mixing, without augmentation and without InputMix."""
    _, cell = without_augmentation(data)
    return replace(cell, column=f"{cell.column}, no InputMix").with_settings({"input_mix": 0}, {})


def transfer_cells(columns: list[tuple[str, str, str, str]]) -> list[Cell]:
    """Transfer between the CIFARs, with one column for each (method, mix, metric, title)."""
    return [
        Cell(transfer_row(data, eval_data), title, training(data, method, mix, epochs=1000), eval_data, metric)
        for data, eval_data in product(CIFAR, CIFAR)
        for method, mix, metric, title in columns
    ]


TABLE1 = build_experiment(
    "table1",
    "Contrastive learning and i-Mix in different domains",
    f"CIFAR: {CIFAR_DESCRIPTION}; {SPEECH_DESCRIPTION}; CovType as in the paper",
    [
        cell
        for data in (*CIFAR, "speech_commands", "covtype")
        for method in ("npair", "moco", "byol")
        for cell in pair(data, method)
    ],
    seeds=5,
)
TABLE2 = build_experiment(
    "table2",
    "MoCo v2 and i-Mix on larger data",
    f"{IMAGENET_DESCRIPTION}; {HIGGS_DESCRIPTION}",
    [cell for data in ("imagenet100", "imagenet", "higgs100k", "higgs1m") for cell in pair(data)],
)
TABLE3 = build_experiment(
    "table3",
    "MoCo v2 and i-Mix without and with augmentation",
    f"CIFAR: {CIFAR_DESCRIPTION}; {SPEECH_DESCRIPTION}; CovType as in the paper; {HIGGS_DESCRIPTION}",
    [
        *(cell for data in SETTINGS_WITHOUT_AUGMENTATION for cell in without_augmentation(data)),
        *map(without_input_mix, CIFAR),
        *(cell for data in SETTINGS_WITHOUT_AUGMENTATION for cell in pair(data)),
    ],
    seeds=5,
    note="Without augmentation, i-Mix on images is combined with InputMix of two samples.",
)
TABLE4A = build_experiment(
    "table4a",
    "Transfer between CIFAR-10 and CIFAR-100",
    CIFAR_DESCRIPTION,
    [
        replace(cell, row=transfer_row(data, eval_data), eval_data=eval_data)
        for data, eval_data in product(CIFAR, CIFAR)
        for cell in pair(data)
    ],
    seeds=5,
)
TABLE4B = build_experiment(
    "table4b",
    "Object detection on VOC with encoders trained on ImageNet",
    f"{IMAGENET_DESCRIPTION}, 2,000 fine-tuning steps",
    [
        replace(cell, row=metric.upper(), eval_data="voc", metric=metric)
        for metric in ("ap", "ap50", "ap75")
        for cell in pair("imagenet")
    ],
    note="The paper's standard deviations are over runs of the detector with one encoder.",
)
TABLEC1 = build_experiment(
    "tableC1",
    "N-pair and SimCLR, i-MixUp and i-CutMix",
    CIFAR_100_EPOCHS_DESCRIPTION,
    transfer_cells(
        [
            (method, mix, "linear", f"{METHODS[method]}{suffix}")
            for method in ("npair", "simclr")
            for mix, suffix in (("none", ""), ("mixup", " + i-MixUp"), ("cutmix", " + i-CutMix"))
        ]
    ),
    short_epochs=100,
    seeds=5,
    note="SimCLR with mixing uses batches of 128 and half the learning rate, because it needs twice the memory.",
)
TABLEC2 = build_experiment(
    "tableC2",
    "Self-supervised and supervised contrastive learning",
    CIFAR_100_EPOCHS_DESCRIPTION,
    transfer_cells(
        [
            (method, mix, "linear", f"{METHODS[method]}{suffix}")
            for simclr, npair in (("simclr", "npair"), ("supclr", "supnpair"))
            for method, mix, suffix in ((simclr, "none", ""), (npair, "none", ""), (npair, "mixup", " + i-Mix"))
        ]
    ),
    short_epochs=100,
    seeds=5,
    note="The paper does not specify the supervised losses completely: here they use the same temperature as the "
    "others and no factor in front.",
)
TABLEC3 = build_experiment(
    "tableC3",
    "Distance between training and test features (FED, x 10^-4), training and test accuracy",
    CIFAR_DESCRIPTION,
    transfer_cells(
        [
            ("npair", mix, metric, f"{title}, N-pair{suffix}")
            for metric, title in (("fed", "FED"), ("training", "training"), ("linear", "test"))
            for mix, suffix in (("none", ""), ("mixup", " + i-Mix"))
        ]
    ),
)
CLASSIFIERS = build_experiment(
    "supervised",
    "Classifiers trained end to end, without and with MixUp",
    f"CIFAR: {CIFAR_100_EPOCHS_DESCRIPTION}; {SPEECH_DESCRIPTION.replace('110', '100')}",
    [cell for data in (*CIFAR, "speech_commands") for cell in pair(data, "supervised")],
    short_epochs=100,
    note="The paper does not say how they were trained. Here they are trained like the other rows, with the same "
    "views, and measured with a linear classifier on the frozen encoder.",
)
TABLES = (TABLE1, TABLE2, TABLE3, TABLE4A, TABLE4B, TABLEC1, TABLEC2, TABLEC3, CLASSIFIERS)
