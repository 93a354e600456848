"""The figures of the paper. They show no numbers; only the few quoted in the text are known."""

from imix.reproduce.datasets import recipe_for, title_of
from imix.reproduce.experiment import Cell, Experiment, with_settings
from imix.reproduce.recipes import build_experiment, paper_number, training, transfer_row
from imix.reproduce.tables import CIFAR_DESCRIPTION
from imix.settings import METHODS

PLAIN, MIXED = METHODS["moco"], f"{METHODS['moco']} + i-Mix"
DEPTHS, EPOCHS = (18, 50, 101, 152), (200, 500, 1000, 2000)
SHORT_FRACTION = 0.1  # a short run on all images does not overfit, so mixing would have little effect
FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def _by_epochs(
    datasets: tuple[str, ...], depths: tuple[int, ...], epochs: tuple[int, ...], short: bool = False
) -> tuple[Cell, ...]:
    """MoCo v2 by network depth and number of epochs."""

    def cell(name: str, depth: int, n_epochs: int, column: str, mix: str) -> Cell:
        settings = {
            **(recipe_for(name).short_settings if short else {}),
            "encoder": f"resnet{depth}",
            "epochs": n_epochs,
        }
        trained = training(name, "moco", mix, SHORT_FRACTION if short else 1.0, **settings)
        return Cell(f"{title_of(name)}, ResNet-{depth}", column, trained, name, x=n_epochs)

    return tuple(
        cell(name, depth, n_epochs, column, mix)
        for name in datasets
        for depth in depths
        for n_epochs in epochs
        for column, mix in ((PLAIN, "none"), (MIXED, "mixup"))
    )


FIGURE2 = Experiment(
    "figure2",
    "Network depth and training length",
    _by_epochs(("cifar10", "cifar100"), DEPTHS, EPOCHS),
    _by_epochs(("cifar10", "cifar100"), (18, 50), (250, 1000), short=True),
    "10% of the images, ResNet-18 and ResNet-50, 250 and 1,000 epochs, weight decay 5e-4, key momentum 0.99",
    axis="epochs",
    note="The paper states the range, 200 to 2,000 epochs; the values in between are our choice. The only numbers in "
    "its text are the best of ResNet-152 with i-Mix: 96.7 (CIFAR-10) and 79.1 (CIFAR-100).",
)

_figure3 = tuple(
    Cell(
        title_of("imagenet"),
        column,
        training("imagenet", "moco", mix, fraction=fraction),
        "imagenet",
        x=100 * fraction,
        paper=paper_number({"none": 70.9, "cutmix": 71.3}[mix]) if fraction == 1 else None,
    )
    for fraction in FRACTIONS
    for column, mix in ((PLAIN, "none"), (MIXED, "cutmix"))
)
FIGURE3 = Experiment(
    "figure3",
    "Size of the training set",
    _figure3,
    tuple(
        with_settings(cell, {**recipe_for("imagenet").short_settings}, {"image_size": 64})
        for cell in _figure3
        if cell.x in (1, 10)
    ),
    "64 pixels, 1% and 10% of the images, ResNet-18, 50 epochs, weight decay 5e-4, key momentum 0.99",
    axis="percent of ImageNet",
    note="The paper states the range, 1% to 100%; the values in between are our choice.",
)

FIGUREC1 = build_experiment(
    "figureC1",
    "t-SNE maps of the features",
    CIFAR_DESCRIPTION,
    [
        Cell(transfer_row("cifar10", name), column, training("cifar10", "npair", mix, epochs=1000), name, "map")
        for name in ("cifar10", "cifar100")
        for column, mix in (("N-pair", "none"), ("N-pair + i-Mix", "mixup"))
    ],
)
FIGURES = (FIGURE2, FIGURE3, FIGUREC1)
