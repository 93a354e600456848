"""The commands of `imix`, one function each: its arguments are the flags, its docstring the help.

What each does is imported when it is asked for, so that `imix --help` is quick. That of the paper is in its folder.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

import tyro

from imix.errors import InputError
from imix.paper.command import reproduce
from imix.settings import Reading, Settings

Data = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
RunFolders = Annotated[list[Path], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]


def pretrain(
    data: Data,
    settings: tyro.conf.OmitArgPrefixes[Settings],
    reading: tyro.conf.OmitArgPrefixes[Reading],
    out: Path,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Learn an encoder from data; labels are not needed.

    Args:
        data: A name (digits, cifar10, cifar100, imagenet, imagenet100, speech_commands, covtype, higgs100k, higgs1m), a
            table (.csv, .parquet), a folder of images or of sounds, or arrays (.npy: samples; .npz: x, and y, x_test,
            y_test if you like).
        settings: How to train.
        reading: How to read the data.
        out: Folder for the run.
        resume: Go on with the run in that folder, if there is one.
        overwrite: Replace the run in that folder.
    """
    from imix.pretraining import pretrain as start

    run = start(data, settings, reading, out=out, resume=resume, overwrite=overwrite)
    if os.environ.get("RANK", "0") == "0":
        print(f"encoder written to {run.path}/encoder.safetensors")


def evaluate(
    run: RunFolder,
    data: str | None = None,
    protocol: Literal["linear", "knn", "pinv", "fed", "detection"] = "linear",
    label: str | None = None,
    columns: dict[str, str] | None = None,
    test: str | None = None,
    data_dir: str | None = None,
    augment: bool = False,
    standardise: bool = False,
    inputs: bool = False,
    device: str = "auto",
    seed: int = 0,
) -> None:
    """What a run's frozen encoder is worth on data, its own or other.

    Args:
        run: Run folder.
        data: Name or file; what the run was trained on unless given.
        protocol: linear as in the paper, knn by cosine, pinv; fed, the distance between training and test features;
            detection of objects (--data voc --data-dir FOLDER).
        label: Column of a table that holds the classes; what the run was told unless given.
        columns: Columns of a table that the run has not seen and that are to be left out (NAME drop).
        test: A second file or folder, with the test samples.
        data_dir: Folder with the files of a named data set.
        augment: A new view of each training image in every epoch of the linear classifier, as in the paper.
        standardise: Bring other data than the run's to mean 0 and deviation 1 by its own training samples.
        inputs: Not the features but the numbers that the encoder sees: what features are to be compared with.
        device: auto, cpu, cuda or cuda:N.
        seed: Of the classifier and of what is held out.
    """
    from imix.evaluation import evaluate as start

    found = start(
        run,
        data,
        protocol,
        label=label,
        columns=columns,
        test=test,
        data_dir=data_dir,
        augment=augment,
        standardise=standardise,
        inputs=inputs,
        device=device,
        seed=seed,
    )
    if os.environ.get("RANK", "0") == "0":
        print(found)


def embed(
    run: RunFolder,
    data: Data,
    out: Path,
    columns: dict[str, str] | None = None,
    keep: tuple[str, ...] = (),
    data_dir: str | None = None,
    device: str = "auto",
) -> None:
    """Features of every sample, to a file.

    Args:
        run: Run folder.
        data: Name or file.
        out: A .parquet, .npy or .csv file.
        columns: Columns of a table that the run has not seen and that are to be left out (NAME drop).
        keep: Columns of a table to write beside the features, such as one by which rows are known.
        data_dir: Folder with the files of a named data set.
        device: auto, cpu, cuda or cuda:N.
    """
    from imix.evaluation import embed as start

    vectors = start(run, data, out, columns=columns, keep=keep, data_dir=data_dir, device=device)
    print(f"{len(vectors):,} vectors of {vectors.shape[1]} features written to {out}")


def transfer(
    runs: RunFolders,
    data: list[str],
    protocol: Literal["linear", "knn", "pinv", "fed"] = "linear",
    label: str | None = None,
    columns: dict[str, str] | None = None,
    data_dir: str | None = None,
    augment: bool = False,
    standardise: bool = False,
    device: str = "auto",
    seed: int = 0,
) -> None:
    """Evaluate every run on every data set: a table.

    Args:
        runs: Run folders.
        data: Names or files.
        protocol: As for evaluate.
        label: Column of tables that holds the classes; what each run was told unless given.
        columns: Columns of tables that the runs have not seen and that are to be left out (NAME drop).
        data_dir: Folder with the files of named data sets.
        augment: A new view of each training image in every epoch of the linear classifier.
        standardise: Bring each data set to mean 0 and deviation 1 by its own training samples.
        device: auto, cpu, cuda or cuda:N.
        seed: Of the classifier and of what is held out.
    """
    from imix.reports.transfers import as_table
    from imix.reports.transfers import transfer as start

    found = start(
        runs,
        data,
        protocol,
        label=label,
        columns=columns,
        data_dir=data_dir,
        augment=augment,
        standardise=standardise,
        device=device,
        seed=seed,
    )
    print(as_table([str(run) for run in runs], data, found))


def report(runs: RunFolders, out: Path | None = None, samples: int = 2000) -> None:
    """One page about a run, or about many to compare them; runs that differ in their seed alone are put together.

    Args:
        runs: Run folders.
        out: The page to write, which holds everything and works offline: unless said, report.html in the run's folder,
            or here if there are several runs.
        samples: How many samples the maps show at most.
    """
    from imix.reports import report as start

    print(f"open {start(runs, out, samples=samples)}")


def export(run: RunFolder, format: Literal["torchvision", "timm", "detectron2", "onnx"], out: Path) -> None:
    """Write a run's encoder for another library, and say how it is loaded there.

    Args:
        run: Run folder.
        format: For which library; all but onnx are for ResNets.
        out: A .safetensors or .pth file for torchvision and timm, .pkl for detectron2, .onnx for onnx.
    """
    from imix.exports import export as start

    print(start(run, format, out))


def map(
    run: RunFolder,
    out: Path,
    data: str | None = None,
    method: Literal["tsne", "umap"] = "tsne",
    samples: int = 2000,
    classes: list[str] | None = None,
    label: str | None = None,
    columns: dict[str, str] | None = None,
    data_dir: str | None = None,
    device: str = "auto",
) -> None:
    """Draw a map of a run's features.

    Args:
        run: Run folder.
        out: An .svg or .png file.
        data: Name or file; what the run was trained on unless given.
        method: tsne, or umap (extra: umap).
        samples: How many samples it shows at most.
        classes: Classes to show; by default all.
        label: Column of a table that holds the classes, an input if you like; what the run was told unless given.
        columns: Columns of a table that the run has not seen and that are to be left out (NAME drop).
        data_dir: Folder with the files of a named data set.
        device: auto, cpu, cuda or cuda:N.
    """
    from imix.reports.maps import draw_map

    path = draw_map(
        run,
        out,
        data,
        method,
        samples,
        classes or (),
        label=label,
        columns=columns,
        data_dir=data_dir,
        device=device,
    )
    print(f"open {path}")


def data(
    action: Annotated[Literal["list", "fetch"], tyro.conf.Positional], name: Data = "", data_dir: str | None = None
) -> None:
    """The data sets that have a name: list them, or fetch one and say what is in it.

    Args:
        action: list or fetch.
        name: Which to fetch.
        data_dir: Folder with its files, to see whether they are as they should be.
    """
    from imix.data.catalogue import CATALOGUE, listed

    if action == "list":
        print(listed())
        return
    if name not in CATALOGUE or name == "voc":
        raise InputError(f"name the data set to fetch: {', '.join(known for known in CATALOGUE if known != 'voc')}")
    from imix.data import load

    found = load(name, Reading(data_dir=data_dir))
    test = "" if found.test is None else f" and {len(found.test):,} test"
    classes = f", {found.train.classes} classes" if found.train.labels is not None else ""
    print(f"{name}: {len(found.train):,} training{test} samples of shape {found.train.shape}{classes}")


def bench(
    data: Data = "",
    *,
    settings: tyro.conf.OmitArgPrefixes[Settings],
    reading: tyro.conf.OmitArgPrefixes[Reading],
    duration: float = 5.0,
) -> None:
    """How fast a run with these settings would be here, what holds it back, and how long it would take.

    Args:
        data: As for pretrain; by default random pictures of CIFAR's size.
        settings: As for pretrain.
        reading: As for pretrain.
        duration: Seconds for which each of the three rates is measured.
    """
    from imix.throughput import bench as start

    print(start(data or None, settings, reading, duration=duration))


def demo(out: Path = Path("imix-demo"), seeds: int = 3, epochs: int | None = None) -> None:
    """See the effect of i-Mix in two minutes: digits, no augmentation, N-pair without and with it.

    Args:
        out: Folder for the runs and report.html; an earlier demo there is replaced.
        seeds: Runs of each.
        epochs: Length of each run, for a quick look.
    """
    from imix.demo import demo as start

    start(out, seeds, epochs)


COMMANDS = (demo, pretrain, evaluate, embed, transfer, report, map, export, data, reproduce, bench)
