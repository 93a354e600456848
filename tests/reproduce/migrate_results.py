"""Updates docs/results/paper after a setting was renamed: python tests/reproduce/migrate_results.py [FOLDER]

The name of a run ends with a hash of its settings by name and value, so renaming a setting changes the name while the
training is the same. This script gives each line of the result files the name that the current code gives to its
cell, and renames the maps accordingly. It also renames columns of older files (`paper_way` is now `best_on_test`).
Do not use it after a change of a setting's *value*: then the results belong to another training and must be run again.
"""

import csv
import sys
from pathlib import Path

from imix.reproduce.requests import EXPERIMENTS, select_cells

RENAMED_COLUMNS = {"paper_way": "best_on_test"}
PAPER_RESULTS = Path(__file__).parents[2] / "docs/results/paper"


def current_name(experiment, line):
    """The name of the run behind a line; only its hash may differ from the old name."""
    cells = select_cells(EXPERIMENTS[experiment], line["budget"])
    [cell] = [cell for cell in cells if (cell.label, cell.column) == (line["row"], line["column"])]
    name = cell.training.name(int(line["seed"]))
    if without_hash(name) != without_hash(line["run"]):
        raise ValueError(f"{line['run']} is not the training of {line['row']!r}, {line['column']!r}: expected {name}")
    return name


def without_hash(name):
    training, _, seed = name.rsplit("-", 2)
    return training, seed


def migrate(folder):
    """Rewrite all result files in a folder."""
    for path in sorted(folder.glob("*.csv")):
        with open(path, newline="", encoding="utf-8") as file:
            lines = [{RENAMED_COLUMNS.get(k, k): v for k, v in line.items()} for line in csv.DictReader(file)]
        for line in lines:
            old, line["run"] = line["run"], current_name(path.stem, line)
            for picture in (folder / "maps").glob(f"{old}-*.svg"):
                picture.rename(picture.with_name(picture.name.replace(old, line["run"])))
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, lines[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    migrate(Path(sys.argv[1]) if len(sys.argv) > 1 else PAPER_RESULTS)
