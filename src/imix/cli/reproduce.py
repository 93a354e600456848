"""The command `imix reproduce`. Like the other commands, it imports its implementation when it is called."""

import re
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from imix.errors import InputError
from imix.output import print_result
from imix.reproduce.experiment import Ambiguities

AMBIGUITIES = Group.create_ordered("Points the paper leaves open")


def reproduce(
    names: tuple[str, ...] = (),
    /,
    *,
    list: bool = False,
    commands: bool = False,
    budget: Literal["paper", "short", "smoke"] = "short",
    row: tuple[str, ...] = (),
    column: tuple[str, ...] = (),
    seeds: int | None = None,
    data_dir: Path | None = None,
    devices: tuple[str, ...] = ("auto",),
    shard: str = "0/1",
    slurm: bool = False,
    out: Path = Path("imix-paper"),
    ambiguities: Annotated[Ambiguities, Parameter(name="*", group=AMBIGUITIES)] = Ambiguities(),
) -> None:
    """Reproduce tables and figures of the paper and compare them with its numbers. Finished results are kept.

    Parameters
    ----------
    names
        table1, table2, table3, table4a, table4b, tableC1, tableC2, tableC3, figure2, figure3, figureC1, supervised;
        or all.
    list
        List the tables and figures (all, or the named ones), their cost with this budget, and their progress.
    commands
        Print the equivalent individual imix commands instead of running them.
    budget
        paper: full length; short: minutes per run on a GPU; smoke: a quick test on tiny fake data.
    row
        Only rows with this name, or with this component of it (--row covtype "CIFAR-10, no augmentation").
    column
        Only these columns (--column "MoCo v2" "MoCo v2 + i-Mix").
    seeds
        Number of seeds; by default the paper's number for the paper budget, otherwise one.
    data_dir
        Folder that contains a folder for each data set, by name; other data sets are downloaded.
    devices
        Devices to use in parallel (cuda:0 cuda:1); list a device twice to run two jobs on it at a time.
    shard
        I/N runs only shard I of N, counted from 0.
    slurm
        Write a Slurm script with one task per training run instead of running them.
    out
        Folder for runs, results and pages.
    """
    from imix.reproduce.plan import as_commands, listing, write_slurm_script
    from imix.reproduce.requests import select_requests

    requests = select_requests(["all"] if list and not names else names, budget, ambiguities, row, column, seeds)
    if list:
        print_result(*listing(requests, out, budget).split("\n"))
        return
    if commands:
        print_result(*as_commands(requests, data_dir).split("\n"))
        return
    if slurm:
        path = write_slurm_script("-".join(names), requests, sys.argv[2:], out)
        print_result(f"wrote {path}; submit it with: sbatch {path}")
        return
    from imix.reproduce.runner import reproduce as run_reproduce

    match = re.fullmatch(r"(\d+)/(\d+)", shard)
    if match is None:
        raise InputError(f"shard must be I/N, such as 0/8; got {shard!r}")
    pages = run_reproduce(
        names,
        budget=budget,
        ambiguities=ambiguities,
        rows=row,
        columns=column,
        seeds=seeds,
        data_dir=data_dir,
        devices=devices,
        shard=(int(match[1]), int(match[2])),
        out=out,
    )
    for page in pages:
        print_result(f"wrote {page}")
