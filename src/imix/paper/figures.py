"""The figures of the paper. What they show is in pictures alone, so few of their numbers are known."""

from imix.paper.experiment import Cell, Experiment, changed
from imix.paper.recipes import ROWS, SHORT, number, shortened, training
from imix.paper.tables import TOLD_CIFAR, TOLD_IMAGENET, transferred
from imix.settings import METHODS

PLAIN, MIXED = METHODS["moco"], f"{METHODS['moco']} + i-Mix"
DEPTHS, LENGTHS = (18, 50, 101, 152), (200, 500, 1000, 2000)
TENTH = 0.1  # of the images: on all of them nothing overfits within minutes, and mixing has nothing to add
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def _by_length(
    data: tuple[str, ...], depths: tuple[int, ...], lengths: tuple[int, ...], short: bool = False
) -> tuple[Cell, ...]:
    """MoCo v2 by depth of the network and length of the training."""
    return tuple(
        Cell(
            f"{ROWS[name]}, ResNet-{depth}",
            column,
            training(
                name,
                "moco",
                mix,
                TENTH if short else 1.0,
                **((SHORT[name] if short else {}) | {"encoder": f"resnet{depth}", "epochs": length}),
            ),
            name,
            x=length,
        )
        for name in data
        for depth in depths
        for length in lengths
        for column, mix in ((PLAIN, "none"), (MIXED, "mixup"))
    )


FIGURE2 = Experiment(
    "figure2",
    "Depth of the network and length of the training",
    _by_length(("cifar10", "cifar100"), DEPTHS, LENGTHS),
    _by_length(("cifar10", "cifar100"), (18, 50), (250, 1000), short=True),
    "a tenth of the images, ResNet-18 and 50, 250 and 1,000 epochs, weight decay 5e-4, key momentum 0.99",
    axis="epochs",
    note="The paper names 200 to 2,000 epochs; those between are our choice. Of its numbers the text gives the best "
    "of ResNet-152 with i-Mix: 96.7 (CIFAR-10) and 79.1 (CIFAR-100).",
)

_figure3 = tuple(
    Cell(
        ROWS["imagenet"],
        column,
        training("imagenet", "moco", mix, fraction=share),
        "imagenet",
        x=100 * share,
        paper=number({"none": 70.9, "cutmix": 71.3}[mix]) if share == 1 else None,
    )
    for share in SHARES
    for column, mix in ((PLAIN, "none"), (MIXED, "cutmix"))
)
FIGURE3 = Experiment(
    "figure3",
    "Size of the data",
    _figure3,
    tuple(changed(cell, SHORT["imagenet"], {"image_size": 64}) for cell in _figure3 if cell.x in (1, 10)),
    TOLD_IMAGENET.replace("a tenth", "a hundredth and a tenth"),
    axis="per cent of ImageNet",
    note="The paper names 1% to 100%; the steps between are our choice.",
)

_figureC1 = tuple(
    Cell(transferred("cifar10", on), column, training("cifar10", "npair", mix, epochs=1000), on, "map")
    for on in ("cifar10", "cifar100")
    for column, mix in (("N-pair", "none"), ("N-pair + i-Mix", "mixup"))
)
FIGUREC1 = Experiment("figureC1", "Maps of features (t-SNE)", _figureC1, shortened(_figureC1), TOLD_CIFAR)
FIGURES = (FIGURE2, FIGURE3, FIGUREC1)
