"""The command `imix reproduce`; as the others in `imix.commands`, it imports what it does when it is asked for."""

import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from imix.errors import InputError
from imix.paper.switches import Switches


def reproduce(
    names: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")],
    switches: tyro.conf.OmitArgPrefixes[Switches],
    list: bool = False,
    commands: bool = False,
    budget: Literal["paper", "short", "smoke"] = "short",
    row: tuple[str, ...] = (),
    column: tuple[str, ...] = (),
    seeds: int | None = None,
    data_dir: Path | None = None,
    devices: tuple[str, ...] = ("auto",),
    part: str = "0/1",
    slurm: bool = False,
    out: Path = Path("imix-paper"),
) -> None:
    """Reproduce tables and figures of the paper, and set them beside its numbers; what is done is not done again.

    Args:
        names: table1, table2, table3, table4a, table4b, tableC1, tableC2, tableC3, figure2, figure3, figureC1,
            supervised; or all.
        switches: Where the paper leaves something open.
        list: Show what there is (or what is named), what it costs at the budget, and what is done.
        commands: Show the commands that do the same, one training at a time.
        budget: paper: its full length; short: what a GPU does in minutes; smoke: a try on tiny stand-in data.
        row: Only rows that are named so, or in part (--row covtype "CIFAR-10, no augmentation").
        column: Only these columns (--column "MoCo v2" "MoCo v2 + i-Mix").
        seeds: Runs of each training; by default the paper's number at its budget, else one.
        data_dir: Folder that has a folder for each data set, by its name; others are downloaded.
        devices: Devices that work side by side (cuda:0 cuda:1); one that is named twice gets two trainings at a time.
        part: I/N does the I-th of N shares of the trainings, counted from 0.
        slurm: Write a script for Slurm instead, with a task for each training.
        out: Folder for runs, results and the page.
    """
    from imix.paper.budget import wanted
    from imix.paper.cluster import script
    from imix.paper.listing import listing
    from imix.paper.spelled_out import spelled_out

    asked = wanted(["all"] if list and not names else names, budget, switches, row, column, seeds)
    if list:
        print(listing(asked, out, budget))
        return
    if commands:
        print(spelled_out(asked, data_dir))
        return
    if slurm:
        path = script("-".join(names), asked, sys.argv[2:], out)
        print(f"wrote {path}; start it with: sbatch {path}")
        return
    from imix.paper.reproduce import reproduce as start

    share = re.fullmatch(r"(\d+)/(\d+)", part)
    if share is None:
        raise InputError(f"part must be I/N, such as 0/8; got {part!r}")
    place = (int(share[1]), int(share[2]))
    page = start(
        names,
        budget=budget,
        switches=switches,
        rows=row,
        columns=column,
        seeds=seeds,
        data_dir=data_dir,
        devices=devices,
        part=place,
        out=out,
    )
    print(f"open {page}")
