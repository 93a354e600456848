"""Facts about the paper's data sets, from their records in `imix.data.named`. Imports no torch."""

from pathlib import Path

from imix.data.named import DATASETS, PaperRecipe


def recipe_for(data: str) -> PaperRecipe:
    """The paper's recipe for a data set."""
    recipe = DATASETS[data].recipe
    assert recipe is not None, f"the paper does not train on {data}"
    return recipe


def protocol_for(data: str) -> str:
    """The protocol by which the paper measures accuracy on a data set."""
    return recipe_for(data).protocol


def title_of(data: str) -> str:
    """The name of a data set as the paper writes it."""
    return DATASETS[data].title


def is_image_data(data: str) -> bool:
    """Whether a data set consists of labeled images."""
    return DATASETS[data].kind == "images"


def is_table(data: str) -> bool:
    """Whether a data set is a table."""
    return DATASETS[data].kind == "table"


def dataset_folder(name: str, data_dir: Path | None) -> str | None:
    """The folder with a data set's files: DATA_DIR/NAME, or DATA_DIR itself if it contains them; otherwise None."""
    if data_dir is None:
        return None
    subfolder = data_dir / name
    if subfolder.is_dir():
        return str(subfolder)
    return str(data_dir) if any((data_dir / file).exists() for file in DATASETS[name].marker_files) else None
