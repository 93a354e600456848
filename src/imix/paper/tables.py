"""The tables of the paper, and the supervised classifiers that its text quotes."""

from typing import Any

from imix.paper.experiment import Cell, Experiment
from imix.paper.recipes import ROWS, measured, number, shortened, training
from imix.settings import METHODS

Paper = tuple[float, ...] | float | None
TOLD_CIFAR = "ResNet-18, 200 epochs, weight decay 5e-4, key momentum 0.99"
TOLD_CIFAR_100 = TOLD_CIFAR.replace("200", "100")
TOLD_SPEECH = "speech: ResNet-18, 110 epochs, weight decay 1e-3, key momentum 0.99"
TOLD_IMAGENET = "ImageNet: 64 pixels, a tenth of the images of all classes, ResNet-18, 50 epochs"
TOLD_HIGGS = "Higgs: 100 epochs, of a million rows 20"
NO_MASKING = {"masking": 0.0}  # as the authors' commands have it for MoCo and BYOL with i-Mix on CovType


def cell(
    column: str,
    paper: Paper,
    data: str,
    method: str,
    mix: str = "none",
    *,
    row: str = "",
    on: str = "",
    **settings: Any,
) -> Cell:
    """The accuracy of a training on its own or other data."""
    on = on or data
    return Cell(row or ROWS[on], column, training(data, method, mix, **settings), on, measured(on), number(paper))


def pair(
    data: str, method: str, papers: tuple[Paper, Paper], plain: dict[str, Any], mixed: dict[str, Any], **where: str
) -> list[Cell]:
    """A method without and with i-Mix, and what is set for each."""
    column = METHODS[method]
    return [
        cell(column, papers[0], data, method, **plain, **where),
        cell(f"{column} + i-Mix", papers[1], data, method, **({"mix": "mixup"} | mixed), **where),
    ]


def epochs(plain: int, mixed: int) -> tuple[dict[str, int], dict[str, int]]:
    """Of a method without and with i-Mix."""
    return {"epochs": plain}, {"epochs": mixed}


def transferred(data: str, on: str) -> str:
    """The row of a training on one data set that is measured on another."""
    return f"{ROWS[data]} → {ROWS[on]}"


MOCO = {  # with augmentation: for tables 1, 3 and 4
    "cifar10": pair("cifar10", "moco", ((93.5, 0.2), (96.1, 0.1)), *epochs(1000, 4000)),
    "cifar100": pair("cifar100", "moco", ((71.6, 0.1), (78.1, 0.3)), *epochs(1000, 2000)),
    "speech_commands": pair("speech_commands", "moco", ((96.3, 0.1), (98.4, 0.0)), {}, {}),
    "covtype": pair("covtype", "moco", ((70.5, 0.2), (73.1, 0.1)), {}, NO_MASKING),
    "higgs100k": pair("higgs100k", "moco", (72.1, 72.9), {}, {}),
    "higgs1m": pair("higgs1m", "moco", (74.9, 74.5), {}, {}),
    "imagenet100": pair("imagenet100", "moco", (84.1, 87.0), {}, {"mix": "cutmix"}),
    "imagenet": pair("imagenet", "moco", (70.9, 71.3), {}, {"mix": "cutmix"}),
}

_table1 = (
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
)
TABLE1 = Experiment(
    "table1",
    "Contrastive learning and i-Mix in different domains",
    _table1,
    shortened(_table1),
    f"CIFAR: {TOLD_CIFAR}; {TOLD_SPEECH}; CovType as in the paper",
    seeds=5,
)

_table2 = (*MOCO["imagenet100"], *MOCO["imagenet"], *MOCO["higgs100k"], *MOCO["higgs1m"])
TABLE2 = Experiment(
    "table2", "MoCo v2 and i-Mix on larger data", _table2, shortened(_table2), f"{TOLD_IMAGENET}; {TOLD_HIGGS}"
)


def _without_augmentation(data: str, papers: tuple[Paper, Paper], plain: dict[str, Any], mixed: dict[str, Any]) -> Any:
    none = NO_MASKING if measured(data) == "pinv" or data == "covtype" else {"augment": "none"}
    return pair(data, "moco", papers, none | plain, none | mixed, row=f"{ROWS[data]}, no augmentation")


SIX = ("cifar10", "cifar100", "speech_commands", "covtype", "higgs100k", "higgs1m")
_input_mix = {"input_mix": 2}
_table3 = (
    *_without_augmentation("cifar10", ((47.7, 1.3), (83.4, 0.4)), {"epochs": 500}, {"epochs": 1000} | _input_mix),
    *_without_augmentation("cifar100", ((24.7, 0.7), (54.0, 0.5)), {"epochs": 1000}, {"epochs": 500} | _input_mix),
    *_without_augmentation("speech_commands", ((76.9, 1.7), (92.8, 0.5)), *2 * [{"temperature": 0.2}]),
    *_without_augmentation("covtype", ((69.6, 0.3), (73.1, 0.1)), {}, {}),
    *_without_augmentation("higgs100k", (64.2, 71.8), {}, {}),
    *_without_augmentation("higgs1m", (65.5, 72.9), {}, {}),
    *(
        cell(
            "MoCo v2 + i-Mix, no InputMix",
            paper,
            data,
            "moco",
            "mixup",
            row=f"{ROWS[data]}, no augmentation",
            augment="none",
            epochs=length,
        )
        for data, paper, length in (("cifar10", 75.1, 1000), ("cifar100", 50.7, 500))
    ),
    *(found for data in SIX for found in MOCO[data]),
)
TABLE3 = Experiment(
    "table3",
    "MoCo v2 and i-Mix without and with augmentation",
    _table3,
    shortened(_table3),
    f"CIFAR: {TOLD_CIFAR}; {TOLD_SPEECH}; CovType as in the paper; {TOLD_HIGGS}",
    seeds=5,
    note="On images i-Mix without augmentation goes with InputMix of two samples.",
)


def _moved(data: str, on: str, papers: tuple[Paper, Paper]) -> list[Cell]:
    lengths = {"cifar10": (1000, 4000), "cifar100": (1000, 2000)}[data]
    return pair(data, "moco", papers, *epochs(*lengths), row=transferred(data, on), on=on)


_table4a = (
    *_moved("cifar10", "cifar10", ((93.5, 0.2), (96.1, 0.1))),
    *_moved("cifar10", "cifar100", ((64.1, 0.4), (70.8, 0.4))),
    *_moved("cifar100", "cifar10", ((85.9, 0.3), (90.0, 0.4))),
    *_moved("cifar100", "cifar100", ((71.6, 0.1), (78.1, 0.3))),
)
TABLE4A = Experiment(
    "table4a", "Transfer between CIFAR-10 and CIFAR-100", _table4a, shortened(_table4a), TOLD_CIFAR, seeds=5
)

_table4b = tuple(
    Cell(row, found.column, found.training, "voc", measure, number(paper))
    for row, measure, papers in (
        ("AP", "ap", ((57.3, 0.1), (57.5, 0.4))),
        ("AP50", "ap50", ((82.5, 0.2), (82.7, 0.2))),
        ("AP75", "ap75", ((63.8, 0.3), (64.2, 0.7))),
    )
    for found, paper in zip(MOCO["imagenet"], papers, strict=True)
)
TABLE4B = Experiment(
    "table4b",
    "Detection of VOC's objects by encoders trained on ImageNet",
    _table4b,
    shortened(_table4b),
    f"{TOLD_IMAGENET}, 2,000 steps of fine-tuning",
    note="The paper's spreads are over runs of the detector on one encoder.",
)

VARIATIONS = {  # table C.1: row by row, N-pair and SimCLR, each plain, with i-MixUp and with i-CutMix
    ("cifar10", "cifar10"): ((92.4, 0.1), (94.8, 0.2), (94.7, 0.1), (92.5, 0.1), (94.8, 0.2), (94.8, 0.2)),
    ("cifar10", "cifar100"): ((60.2, 0.3), (63.3, 0.2), (61.5, 0.2), (60.0, 0.2), (61.4, 1.0), (57.1, 0.4)),
    ("cifar100", "cifar10"): ((84.4, 0.2), (86.2, 0.2), (85.1, 0.2), (84.4, 0.2), (85.2, 0.3), (83.7, 0.6)),
    ("cifar100", "cifar100"): ((68.7, 0.2), (72.3, 0.2), (72.3, 0.4), (68.7, 0.2), (72.3, 0.2), (71.7, 0.2)),
}
_tableC1 = tuple(
    cell(f"{METHODS[method]}{name}", paper, data, method, mix, row=transferred(data, on), on=on, epochs=1000)
    for (data, on), papers in VARIATIONS.items()
    for (method, mix, name), paper in zip(
        [
            (method, mix, name)
            for method in ("npair", "simclr")
            for mix, name in (("none", ""), ("mixup", " + i-MixUp"), ("cutmix", " + i-CutMix"))
        ],
        papers,
        strict=True,
    )
)
TABLEC1 = Experiment(
    "tableC1",
    "N-pair and SimCLR, i-MixUp and i-CutMix",
    _tableC1,
    shortened(_tableC1, epochs=100),
    TOLD_CIFAR_100,
    seeds=5,
    note="SimCLR with mixing has batches of 128 and half the rate, as it takes twice the memory.",
)

SUPERVISED = {  # table C.2: SimCLR, N-pair, N-pair + i-Mix, and the same supervised
    ("cifar10", "cifar10"): ((92.5, 0.1), (92.4, 0.1), (94.8, 0.2), (95.6, 0.3), (95.7, 0.1), (97.0, 0.1)),
    ("cifar10", "cifar100"): ((60.0, 0.2), (60.2, 0.3), (63.3, 0.2), (58.6, 0.2), (58.9, 0.5), (57.8, 0.6)),
    ("cifar100", "cifar10"): ((84.4, 0.2), (84.4, 0.2), (86.2, 0.2), (86.5, 0.4), (86.7, 0.2), (88.7, 0.2)),
    ("cifar100", "cifar100"): ((68.7, 0.2), (68.7, 0.2), (72.3, 0.2), (74.3, 0.2), (74.6, 0.3), (78.4, 0.2)),
}
_tableC2 = tuple(
    cell(METHODS[method] + name, paper, data, method, mix, row=transferred(data, on), on=on, epochs=1000)
    for (data, on), papers in SUPERVISED.items()
    for (method, mix, name), paper in zip(
        [
            (method, mix, name)
            for simclr, npair in (("simclr", "npair"), ("supclr", "supnpair"))
            for method, mix, name in ((simclr, "none", ""), (npair, "none", ""), (npair, "mixup", " + i-Mix"))
        ],
        papers,
        strict=True,
    )
)
TABLEC2 = Experiment(
    "tableC2",
    "Self-supervised and supervised contrastive learning",
    _tableC2,
    shortened(_tableC2, epochs=100),
    TOLD_CIFAR_100,
    seeds=5,
    note="The supervised objectives have the temperature of the others and no factor before; the paper leaves it open.",
)

EMBEDDINGS = {  # table C.3: FED, training and test accuracy, each of N-pair and N-pair + i-Mix
    ("cifar10", "cifar10"): (30.0, 16.7, 96.1, 96.1, 92.4, 94.8),
    ("cifar10", "cifar100"): (13.8, 7.9, 70.7, 69.5, 60.2, 63.3),
    ("cifar100", "cifar10"): (15.2, 9.7, 88.1, 88.8, 84.4, 86.2),
    ("cifar100", "cifar100"): (30.4, 13.3, 85.6, 79.0, 68.7, 72.3),
}
_tableC3 = tuple(
    Cell(transferred(data, on), column + name, training(data, "npair", mix, epochs=1000), on, measure, number(paper))
    for (data, on), papers in EMBEDDINGS.items()
    for (measure, column, mix, name), paper in zip(
        [
            (measure, column, mix, name)
            for measure, column in (
                ("fed", "FED, N-pair"),
                ("training", "training, N-pair"),
                ("linear", "test, N-pair"),
            )
            for mix, name in (("none", ""), ("mixup", " + i-Mix"))
        ],
        papers,
        strict=True,
    )
)
TABLEC3 = Experiment(
    "tableC3",
    "Distance between training and test features (FED, x 10^-4), training and test accuracy",
    _tableC3,
    shortened(_tableC3),
    TOLD_CIFAR,
)

_classifiers = (
    *pair("cifar10", "supervised", (95.5, 96.6), *epochs(1000, 1000)),
    *pair("cifar100", "supervised", (78.9, 82.2), *epochs(1000, 1000)),
    *pair("speech_commands", "supervised", (98.0, None), {}, {}),
)
CLASSIFIERS = Experiment(
    "supervised",
    "Classifiers trained end to end, without and with MixUp",
    _classifiers,
    shortened(_classifiers, epochs=100),
    f"CIFAR: {TOLD_CIFAR_100}; {TOLD_SPEECH.replace('110', '100')}",
    note="The paper does not say how they were trained: here as the other rows are, with the same views, measured by "
    "a linear classifier on the frozen encoder.",
)
TABLES = (TABLE1, TABLE2, TABLE3, TABLE4A, TABLE4B, TABLEC1, TABLEC2, TABLEC3, CLASSIFIERS)
