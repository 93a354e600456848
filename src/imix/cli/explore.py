"""The subcommands of `imix` that explore data: cluster, similar, duplicates, outliers, select and label-errors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cyclopts import Parameter

from imix.cli.exits import with_flags
from imix.cli.flags import LabelFlags
from imix.output import print_result


@Parameter(name="*")
@dataclass(frozen=True)
class SampleFlags(LabelFlags):
    """Data options, and the columns to keep."""

    test: str | None = None
    """Second file or folder, with test samples."""
    keep: tuple[str, ...] = ()
    """Columns of tables to copy to the output, such as an id."""


def cluster(
    run: Path,
    data: str | None = None,
    /,
    *,
    out: Path | None = None,
    k: tuple[int, ...] = (),
    method: Literal["kmeans", "hdbscan"] = "kmeans",
    min_size: int | None = None,
    seed: int = 0,
    flags: SampleFlags = SampleFlags(),
) -> None:
    """Divide samples into groups of similar samples, and show how each group differs from the others.

    Parameters
    ----------
    run
        Run folder.
    data
        Name or file; by default the data the run was trained on.
    out
        A .parquet or .csv file for the group of each sample.
    k
        Number of groups, or several to choose from; by default up to 20.
    method
        kmeans, or hdbscan for dense groups of any shape.
    min_size
        Smallest group of hdbscan; by default 1% of the samples.
    seed
        Seed of k-means.
    """
    from imix.explore.cluster import cluster as run_cluster

    _print(run_cluster(run, data, out, k=k or None, method=method, min_size=min_size, seed=seed, **vars(flags)), out)


def similar(
    run: Path,
    data: str | None = None,
    /,
    *,
    to: tuple[str, ...] = (),
    k: int = 10,
    out: Path | None = None,
    flags: SampleFlags = SampleFlags(),
) -> None:
    """Find the nearest neighbors of rows, files, other data or every sample.

    Parameters
    ----------
    run
        Run folder.
    data
        Name or file of the samples to search; by default the data the run was trained on.
    to
        The queries: another file, row numbers of training samples (from 0), or names of files; by default every sample.
    k
        Number of neighbors.
    out
        A .parquet or .csv file for the neighbors.
    """
    from imix.explore.similar import similar as run_similar

    queries = [int(word) for word in to] if all(map(str.isdecimal, to)) else to[0] if len(to) == 1 else list(to)
    _print(run_similar(run, data, out, to=queries or None, k=k, **vars(flags)), out)


def duplicates(
    run: Path,
    data: str | None = None,
    /,
    *,
    out: Path | None = None,
    threshold: float | None = None,
    flags: SampleFlags = SampleFlags(),
) -> None:
    """Find exact and near-duplicates, also between training and test samples.

    Parameters
    ----------
    run
        Run folder.
    data
        Name or file; by default the data the run was trained on.
    out
        A .parquet or .csv file for the pairs.
    threshold
        Largest distance of a near-duplicate, relative to the median distance between neighbors, between 0 and 1; by
        default chosen from the data.
    """
    from imix.explore.duplicates import duplicates as run_duplicates

    _print(run_duplicates(run, data, out, threshold=threshold, **vars(flags)), out)


def outliers(
    run: Path, data: str | None = None, /, *, out: Path | None = None, k: int = 10, flags: SampleFlags = SampleFlags()
) -> None:
    """Find the samples that are least similar to all others, with reasons for rows of tables.

    Parameters
    ----------
    run
        Run folder.
    data
        Name or file; by default the data the run was trained on.
    out
        A .parquet or .csv file for the score of each sample.
    k
        Number of neighbors that a sample is compared with.
    """
    from imix.explore.outliers import outliers as run_outliers

    _print(run_outliers(run, data, out, k=k, **vars(flags)), out)


def select(
    run: Path,
    data: str | None = None,
    /,
    *,
    n: int,
    out: Path | None = None,
    seed: int = 0,
    flags: SampleFlags = SampleFlags(),
) -> None:
    """Choose the training samples to label next, so that the labels cover the data.

    With --label, samples that already have a label are not chosen and count as covered.

    Parameters
    ----------
    run
        Run folder.
    data
        Name or file; by default the data the run was trained on.
    n
        Number of samples to choose.
    out
        A .parquet or .csv file for the chosen samples.
    seed
        Seed of k-means.
    """
    from imix.explore.select import select as run_select

    _print(run_select(run, data, out, n=n, seed=seed, **vars(flags)), out)


def label_errors(
    run: Path, data: str | None = None, /, *, out: Path | None = None, seed: int = 0, flags: SampleFlags = SampleFlags()
) -> None:
    """Rank labels by how likely they are wrong, judging by similar samples.

    Parameters
    ----------
    run
        Run folder.
    data
        Name or file; by default the data the run was trained on.
    out
        A .parquet or .csv file for the rank of each label.
    seed
        Seed of the cross-validation folds.
    """
    from imix.explore.label_errors import label_errors as run_label_errors

    _print(run_label_errors(run, data, out, seed=seed, **vars(flags)), out)


def _print(answer: object, out: Path | None) -> None:
    print_result(*with_flags(str(answer)).split("\n"))
    if out is not None:
        print_result("", f"written to {out}")
