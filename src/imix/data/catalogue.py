"""The data sets that have a name: what they are, and where they come from. No torch here."""

from typing import NamedTuple


class Named(NamedTuple):
    """A data set: what it holds, and how it is had."""

    holds: str
    source: str


DOWNLOADED = "downloaded when first used, or --data-dir"
CATALOGUE = {
    "digits": Named("1,797 images of 8 x 8 pixels, 10 classes", "comes with scikit-learn"),
    "cifar10": Named("60,000 images of 32 x 32 pixels, 10 classes", DOWNLOADED),
    "cifar100": Named("60,000 images of 32 x 32 pixels, 100 classes", DOWNLOADED),
    "imagenet": Named("1.3 million images, 1,000 classes", "--data-dir with the folders train and val"),
    "imagenet100": Named("a hundred classes of ImageNet, drawn once", "--data-dir with the folders train and val"),
    "speech_commands": Named("64,727 clips of a second (v0.01), 12 classes", DOWNLOADED),
    "speech_commands_v0.02": Named("105,829 clips of a second, 12 classes", DOWNLOADED),
    "covtype": Named("581,012 rows of 12 columns, 7 classes", DOWNLOADED),
    "higgs100k": Named("100,000 rows of 28 columns and 500,000 for testing, 2 classes", "--data-dir with HIGGS.csv.gz"),
    "higgs1m": Named("1,000,000 rows of 28 columns and 500,000 for testing, 2 classes", "--data-dir with HIGGS.csv.gz"),
    "voc": Named("photographs with boxes around objects, for `imix evaluate --protocol detection`", "--data-dir"),
}


def listed() -> str:
    """The data sets, a line each."""
    width = max(map(len, CATALOGUE)) + 2
    return "\n".join(f"{name:<{width}}{known.holds} ({known.source})" for name, known in CATALOGUE.items())
