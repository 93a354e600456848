"""The figures of the paper. They show no numbers; only the few quoted in the text are known."""

from itertools import product
from typing import Any

from imix.data.named import DATASETS
from imix.reproduce.experiment import Cell
from imix.reproduce.recipes import build_experiment, recipe_for, training, transfer_row
from imix.reproduce.tables import CIFAR, CIFAR_DESCRIPTION
from imix.settings import METHODS

PLAIN, MIXED = METHODS["moco"], f"{METHODS['moco']} + i-Mix"
SHORT_FRACTION = 0.1  # a short run on all images does not overfit, so mixing would have little effect


def _by_epochs(
    depths: tuple[int, ...], epochs: tuple[int, ...], fraction: float, settings: dict[str, Any]
) -> list[Cell]:
    """MoCo v2 by network depth and number of epochs."""
    cells = []
    for data, depth, n_epochs, mix in product(CIFAR, depths, epochs, ("none", "mixup")):
        used = settings | {"encoder": f"resnet{depth}", "epochs": n_epochs}
        row, column = f"{DATASETS[data].title}, ResNet-{depth}", PLAIN if mix == "none" else MIXED
        cells.append(Cell(row, column, training(data, "moco", mix, fraction, **used), data, x=n_epochs))
    return cells


FIGURE2 = build_experiment(
    "figure2",
    "Network depth and training length",
    "10% of the images, ResNet-18 and ResNet-50, 250 and 1,000 epochs, weight decay 5e-4, key momentum 0.99",
    _by_epochs((18, 50, 101, 152), (200, 500, 1000, 2000), 1.0, {}),
    _by_epochs((18, 50), (250, 1000), SHORT_FRACTION, recipe_for("cifar10").short_settings),
    axis="epochs",
    note="The paper states the range, 200 to 2,000 epochs; the values in between are our choice. The only numbers in "
    "its text are the best of ResNet-152 with i-Mix: 96.7 (CIFAR-10) and 79.1 (CIFAR-100).",
)

_figure3 = [
    Cell(DATASETS["imagenet"].title, column, training("imagenet", "moco", mix, x / 100), "imagenet", x=x)
    for x in (1, 2, 5, 10, 20, 50, 100)
    for column, mix in ((PLAIN, "none"), (MIXED, "cutmix"))
]
FIGURE3 = build_experiment(
    "figure3",
    "Size of the training set",
    "64 pixels, 1% and 10% of the images, ResNet-18, 50 epochs, weight decay 5e-4, key momentum 0.99",
    _figure3,
    [
        cell.with_settings(recipe_for("imagenet").short_settings, {"image_size": 64})
        for cell in _figure3
        if cell.x in (1, 10)
    ],
    axis="percent of ImageNet",
    note="The paper states the range, 1% to 100%; the values in between are our choice.",
)

FIGUREC1 = build_experiment(
    "figureC1",
    "t-SNE maps of the features",
    CIFAR_DESCRIPTION,
    [
        Cell(transfer_row("cifar10", name), column, training("cifar10", "npair", mix, epochs=1000), name, "map")
        for name in CIFAR
        for column, mix in (("N-pair", "none"), ("N-pair + i-Mix", "mixup"))
    ],
)
FIGURES = (FIGURE2, FIGURE3, FIGUREC1)
