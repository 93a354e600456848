"""The tables of the paper, and the supervised classifiers quoted in its text."""

from collections.abc import Mapping
from typing import Any

from imix.reproduce.datasets import is_table, title_of
from imix.reproduce.experiment import Cell
from imix.reproduce.recipes import (
    Paper,
    accuracy_cell,
    build_experiment,
    epochs,
    pair,
    paper_number,
    training,
    transfer_row,
)
from imix.settings import METHODS

CIFAR_DESCRIPTION = "ResNet-18, 200 epochs, weight decay 5e-4, key momentum 0.99"
CIFAR_100_EPOCHS_DESCRIPTION = CIFAR_DESCRIPTION.replace("200", "100")
SPEECH_DESCRIPTION = "Speech Commands: ResNet-18, 110 epochs, weight decay 1e-3, key momentum 0.99"
IMAGENET_DESCRIPTION = (
    "ImageNet: 64 pixels, ImageNet-1k with 10% of the images, ResNet-18, 50 epochs, weight decay 5e-4, "
    "key momentum 0.99"
)
HIGGS_DESCRIPTION = "Higgs100k: 100 epochs; Higgs1M: 20 epochs"
NO_MASKING = {"masking": 0.0}  # the authors' commands use it for MoCo and BYOL with i-Mix on CovType

MOCO = {  # with augmentation; shared by tables 1 to 4
    "cifar10": pair("cifar10", "moco", ((93.5, 0.2), (96.1, 0.1)), *epochs(1000, 4000)),
    "cifar100": pair("cifar100", "moco", ((71.6, 0.1), (78.1, 0.3)), *epochs(1000, 2000)),
    "speech_commands": pair("speech_commands", "moco", ((96.3, 0.1), (98.4, 0.0)), {}, {}),
    "covtype": pair("covtype", "moco", ((70.5, 0.2), (73.1, 0.1)), {}, NO_MASKING),
    "higgs100k": pair("higgs100k", "moco", (72.1, 72.9), {}, {}),
    "higgs1m": pair("higgs1m", "moco", (74.9, 74.5), {}, {}),
    "imagenet100": pair("imagenet100", "moco", (84.1, 87.0), {}, {"mix": "cutmix"}),
    "imagenet": pair("imagenet", "moco", (70.9, 71.3), {}, {"mix": "cutmix"}),
}

TABLE1 = build_experiment(
    "table1",
    "Contrastive learning and i-Mix in different domains",
    f"CIFAR: {CIFAR_DESCRIPTION}; {SPEECH_DESCRIPTION}; CovType as in the paper",
    [
        *pair("cifar10", "npair", ((93.3, 0.1), (95.6, 0.2)), *epochs(2000, 4000)),
        *MOCO["cifar10"],
        *pair("cifar10", "byol", ((94.2, 0.2), (96.3, 0.2)), *epochs(1000, 2000)),
        *pair("cifar100", "npair", ((70.8, 0.4), (75.8, 0.3)), *epochs(4000, 2000)),
        *MOCO["cifar100"],
        *pair("cifar100", "byol", ((72.7, 0.4), (78.6, 0.2)), *epochs(1000, 4000)),
        *pair("speech_commands", "npair", ((94.9, 0.1), (98.3, 0.1)), {}, {}),
        *MOCO["speech_commands"],
        *pair("speech_commands", "byol", ((94.8, 0.2), (98.3, 0.0)), {}, {}),
        *pair("covtype", "npair", ((68.5, 0.3), (72.1, 0.2)), {}, {}),
        *MOCO["covtype"],
        *pair("covtype", "byol", ((72.1, 0.2), (74.1, 0.2)), {}, NO_MASKING),
    ],
    seeds=5,
)

TABLE2 = build_experiment(
    "table2",
    "MoCo v2 and i-Mix on larger data",
    f"{IMAGENET_DESCRIPTION}; {HIGGS_DESCRIPTION}",
    [*MOCO["imagenet100"], *MOCO["imagenet"], *MOCO["higgs100k"], *MOCO["higgs1m"]],
)


def _no_augmentation(data: str) -> str:
    return f"{title_of(data)}, no augmentation"


def _without_augmentation(
    data: str, papers: tuple[Paper, Paper], plain: dict[str, Any], mixed: dict[str, Any]
) -> list[Cell]:
    off = NO_MASKING if is_table(data) else {"augment": "none"}
    return pair(data, "moco", papers, off | plain, off | mixed, row=_no_augmentation(data))


TABLE3_DATA = ("cifar10", "cifar100", "speech_commands", "covtype", "higgs100k", "higgs1m")
_INPUT_MIX = {"input_mix": 2}
TABLE3 = build_experiment(
    "table3",
    "MoCo v2 and i-Mix without and with augmentation",
    f"CIFAR: {CIFAR_DESCRIPTION}; {SPEECH_DESCRIPTION}; CovType as in the paper; {HIGGS_DESCRIPTION}",
    [
        *_without_augmentation("cifar10", ((47.7, 1.3), (83.4, 0.4)), {"epochs": 500}, {"epochs": 1000} | _INPUT_MIX),
        *_without_augmentation("cifar100", ((24.7, 0.7), (54.0, 0.5)), {"epochs": 1000}, {"epochs": 500} | _INPUT_MIX),
        *_without_augmentation("speech_commands", ((76.9, 1.7), (92.8, 0.5)), *2 * [{"temperature": 0.2}]),
        *_without_augmentation("covtype", ((69.6, 0.3), (73.1, 0.1)), {}, {}),
        *_without_augmentation("higgs100k", (64.2, 71.8), {}, {}),
        *_without_augmentation("higgs1m", (65.5, 72.9), {}, {}),
        *(
            accuracy_cell(
                "MoCo v2 + i-Mix, no InputMix",
                paper,
                data,
                "moco",
                "mixup",
                row=_no_augmentation(data),
                augment="none",
                epochs=n_epochs,
            )
            for data, paper, n_epochs in (("cifar10", 75.1, 1000), ("cifar100", 50.7, 500))
        ),
        *(cell for data in TABLE3_DATA for cell in MOCO[data]),
    ],
    seeds=5,
    note="Without augmentation, i-Mix on images is combined with InputMix of two samples.",
)


def _moco_on(data: str, row: str, eval_data: str, papers: tuple[Paper, Paper], metric: str = "linear") -> list[Cell]:
    """The training runs of `MOCO[data]`, measured on `eval_data`."""
    return [
        Cell(row, cell.column, cell.training, eval_data, metric, paper_number(paper))
        for cell, paper in zip(MOCO[data], papers, strict=True)
    ]


TABLE4A = build_experiment(
    "table4a",
    "Transfer between CIFAR-10 and CIFAR-100",
    CIFAR_DESCRIPTION,
    [
        *_moco_on("cifar10", "CIFAR-10 → CIFAR-10", "cifar10", ((93.5, 0.2), (96.1, 0.1))),
        *_moco_on("cifar10", "CIFAR-10 → CIFAR-100", "cifar100", ((64.1, 0.4), (70.8, 0.4))),
        *_moco_on("cifar100", "CIFAR-100 → CIFAR-10", "cifar10", ((85.9, 0.3), (90.0, 0.4))),
        *_moco_on("cifar100", "CIFAR-100 → CIFAR-100", "cifar100", ((71.6, 0.1), (78.1, 0.3))),
    ],
    seeds=5,
)
TABLE4B = build_experiment(
    "table4b",
    "Object detection on VOC with encoders trained on ImageNet",
    f"{IMAGENET_DESCRIPTION}, 2,000 fine-tuning steps",
    [
        *_moco_on("imagenet", "AP", "voc", ((57.3, 0.1), (57.5, 0.4)), "ap"),
        *_moco_on("imagenet", "AP50", "voc", ((82.5, 0.2), (82.7, 0.2)), "ap50"),
        *_moco_on("imagenet", "AP75", "voc", ((63.8, 0.3), (64.2, 0.7)), "ap75"),
    ],
    note="The paper's standard deviations are over runs of the detector with one encoder.",
)


def _transfer_cells(
    numbers: Mapping[tuple[str, str], tuple[Paper, ...]], columns: list[tuple[str, str, str, str]]
) -> list[Cell]:
    """One row for each (data set, evaluation data set), and one column for each (method, mix, metric, title)."""
    return [
        Cell(
            transfer_row(data, eval_data),
            column,
            training(data, method, mix, epochs=1000),
            eval_data,
            metric,
            paper_number(paper),
        )
        for (data, eval_data), papers in numbers.items()
        for (method, mix, metric, column), paper in zip(columns, papers, strict=True)
    ]


TABLE_C1_NUMBERS = {  # N-pair and SimCLR, each without mixing, with i-MixUp and with i-CutMix
    ("cifar10", "cifar10"): ((92.4, 0.1), (94.8, 0.2), (94.7, 0.1), (92.5, 0.1), (94.8, 0.2), (94.8, 0.2)),
    ("cifar10", "cifar100"): ((60.2, 0.3), (63.3, 0.2), (61.5, 0.2), (60.0, 0.2), (61.4, 1.0), (57.1, 0.4)),
    ("cifar100", "cifar10"): ((84.4, 0.2), (86.2, 0.2), (85.1, 0.2), (84.4, 0.2), (85.2, 0.3), (83.7, 0.6)),
    ("cifar100", "cifar100"): ((68.7, 0.2), (72.3, 0.2), (72.3, 0.4), (68.7, 0.2), (72.3, 0.2), (71.7, 0.2)),
}
TABLE_C1_COLUMNS = [
    (method, mix, "linear", f"{METHODS[method]}{suffix}")
    for method in ("npair", "simclr")
    for mix, suffix in (("none", ""), ("mixup", " + i-MixUp"), ("cutmix", " + i-CutMix"))
]
TABLEC1 = build_experiment(
    "tableC1",
    "N-pair and SimCLR, i-MixUp and i-CutMix",
    CIFAR_100_EPOCHS_DESCRIPTION,
    _transfer_cells(TABLE_C1_NUMBERS, TABLE_C1_COLUMNS),
    short_epochs=100,
    seeds=5,
    note="SimCLR with mixing uses batches of 128 and half the learning rate, because it needs twice the memory.",
)

TABLE_C2_NUMBERS = {  # SimCLR, N-pair, N-pair + i-Mix, and their supervised versions
    ("cifar10", "cifar10"): ((92.5, 0.1), (92.4, 0.1), (94.8, 0.2), (95.6, 0.3), (95.7, 0.1), (97.0, 0.1)),
    ("cifar10", "cifar100"): ((60.0, 0.2), (60.2, 0.3), (63.3, 0.2), (58.6, 0.2), (58.9, 0.5), (57.8, 0.6)),
    ("cifar100", "cifar10"): ((84.4, 0.2), (84.4, 0.2), (86.2, 0.2), (86.5, 0.4), (86.7, 0.2), (88.7, 0.2)),
    ("cifar100", "cifar100"): ((68.7, 0.2), (68.7, 0.2), (72.3, 0.2), (74.3, 0.2), (74.6, 0.3), (78.4, 0.2)),
}
TABLE_C2_COLUMNS = [
    (method, mix, "linear", f"{METHODS[method]}{suffix}")
    for simclr, npair in (("simclr", "npair"), ("supclr", "supnpair"))
    for method, mix, suffix in ((simclr, "none", ""), (npair, "none", ""), (npair, "mixup", " + i-Mix"))
]
TABLEC2 = build_experiment(
    "tableC2",
    "Self-supervised and supervised contrastive learning",
    CIFAR_100_EPOCHS_DESCRIPTION,
    _transfer_cells(TABLE_C2_NUMBERS, TABLE_C2_COLUMNS),
    short_epochs=100,
    seeds=5,
    note="The paper does not specify the supervised losses completely: here they use the same temperature as the "
    "others and no factor in front.",
)

TABLE_C3_NUMBERS = {  # FED, training accuracy and test accuracy, each without and with i-Mix
    ("cifar10", "cifar10"): (30.0, 16.7, 96.1, 96.1, 92.4, 94.8),
    ("cifar10", "cifar100"): (13.8, 7.9, 70.7, 69.5, 60.2, 63.3),
    ("cifar100", "cifar10"): (15.2, 9.7, 88.1, 88.8, 84.4, 86.2),
    ("cifar100", "cifar100"): (30.4, 13.3, 85.6, 79.0, 68.7, 72.3),
}
TABLE_C3_COLUMNS = [
    ("npair", mix, metric, f"{title}, N-pair{suffix}")
    for metric, title in (("fed", "FED"), ("training", "training"), ("linear", "test"))
    for mix, suffix in (("none", ""), ("mixup", " + i-Mix"))
]
TABLEC3 = build_experiment(
    "tableC3",
    "Distance between training and test features (FED, x 10^-4), training and test accuracy",
    CIFAR_DESCRIPTION,
    _transfer_cells(TABLE_C3_NUMBERS, TABLE_C3_COLUMNS),
)

CLASSIFIERS = build_experiment(
    "supervised",
    "Classifiers trained end to end, without and with MixUp",
    f"CIFAR: {CIFAR_100_EPOCHS_DESCRIPTION}; {SPEECH_DESCRIPTION.replace('110', '100')}",
    [
        *pair("cifar10", "supervised", (95.5, 96.6), *epochs(1000, 1000)),
        *pair("cifar100", "supervised", (78.9, 82.2), *epochs(1000, 1000)),
        *pair("speech_commands", "supervised", (98.0, None), {}, {}),
    ],
    short_epochs=100,
    note="The paper does not say how they were trained. Here they are trained like the other rows, with the same "
    "views, and measured with a linear classifier on the frozen encoder.",
)
TABLES = (TABLE1, TABLE2, TABLE3, TABLE4A, TABLE4B, TABLEC1, TABLEC2, TABLEC3, CLASSIFIERS)
