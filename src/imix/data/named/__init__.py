"""The named data sets, one file each. Nothing here imports torch, so that listing them is fast."""

from imix.data.named import (
    cifar10,
    cifar100,
    covtype,
    digits,
    higgs1m,
    higgs100k,
    imagenet,
    imagenet100,
    speech_commands,
    speech_commands_v2,
    voc,
)
from imix.data.named.record import NamedDataset, PaperRecipe

__all__ = ["DATASETS", "NamedDataset", "PaperRecipe", "list_datasets"]

DATASETS: dict[str, NamedDataset] = {
    module.DATASET.name: module.DATASET
    for module in (
        digits,
        cifar10,
        cifar100,
        imagenet,
        imagenet100,
        speech_commands,
        speech_commands_v2,
        covtype,
        higgs100k,
        higgs1m,
        voc,
    )
}


def list_datasets() -> str:
    """Return a text with one line per named data set."""
    width = max(map(len, DATASETS)) + 2
    return "\n".join(f"{name:<{width}}{data.summary} ({data.availability})" for name, data in DATASETS.items())
