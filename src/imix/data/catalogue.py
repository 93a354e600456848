"""The data sets that have a name: what they are, and where they come from. No torch here."""

from typing import Literal, NamedTuple


class Named(NamedTuple):
    """A data set: what it is, what it holds, and how it is had."""

    kind: Literal["images", "images of any size", "sounds", "table", "scenes"]
    holds: str
    source: str


DOWNLOADED = "downloaded when first used, or --data-dir"
CATALOGUE = {
    "digits": Named("images", "1,797 images of 8 x 8 pixels, 10 classes", "comes with scikit-learn"),
    "cifar10": Named("images", "60,000 images of 32 x 32 pixels, 10 classes", DOWNLOADED),
    "cifar100": Named("images", "60,000 images of 32 x 32 pixels, 100 classes", DOWNLOADED),
    "imagenet": Named(
        "images of any size", "1.3 million images, 1,000 classes", "--data-dir with the folders train and val"
    ),
    "imagenet100": Named(
        "images of any size", "a hundred classes of ImageNet, drawn once", "--data-dir with the folders train and val"
    ),
    "speech_commands": Named("sounds", "64,727 clips of a second (v0.01), 12 classes", DOWNLOADED),
    "speech_commands_v0.02": Named("sounds", "105,829 clips of a second, 12 classes", DOWNLOADED),
    "covtype": Named("table", "581,012 rows of 12 columns, 7 classes", DOWNLOADED),
    "higgs100k": Named(
        "table", "100,000 rows of 28 columns and 500,000 for testing, 2 classes", "--data-dir with HIGGS.csv.gz"
    ),
    "higgs1m": Named(
        "table", "1,000,000 rows of 28 columns and 500,000 for testing, 2 classes", "--data-dir with HIGGS.csv.gz"
    ),
    "voc": Named(
        "scenes", "photographs with boxes around objects, for `imix evaluate --protocol detection`", "--data-dir"
    ),
}


def listed() -> str:
    """The data sets, a line each."""
    width = max(map(len, CATALOGUE)) + 2
    return "\n".join(f"{name:<{width}}{known.holds} ({known.source})" for name, known in CATALOGUE.items())
