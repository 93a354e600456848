"""The subcommands of `imix`, one function each: the parameters are the flags, the docstring is the help text.

Implementations are imported when a command is called, so that `imix --help` starts quickly.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

import tyro

from imix.cli.reproduce import reproduce
from imix.errors import InputError
from imix.settings import DataSettings, Settings

Data = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
RunFolders = Annotated[list[Path], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]


def pretrain(
    data: Data,
    settings: tyro.conf.OmitArgPrefixes[Settings],
    data_settings: tyro.conf.OmitArgPrefixes[DataSettings],
    out: Path,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Train an encoder on data; labels are not needed.

    Args:
        data: Name of a data set (see `imix data list`), a table (.csv, .parquet), a folder of images or audio files, or
            arrays (.npy: samples; .npz: x, optionally y, x_test, y_test).
        settings: Training options.
        data_settings: Data options.
        out: Run folder to write.
        resume: Continue the run in this folder, if there is one.
        overwrite: Replace the run in this folder.
    """
    from imix.train.pretrain import pretrain as run_pretrain

    run = run_pretrain(data, settings, data_settings, out=out, resume=resume, overwrite=overwrite)
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
    random_crops: bool = False,
    restandardize: bool = False,
    inputs: bool = False,
    device: str = "auto",
    seed: int = 0,
) -> None:
    """Measure how good the features of a run's frozen encoder are, on its own or other data.

    Args:
        run: Run folder.
        data: Name or file; by default the data the run was trained on.
        protocol: linear: linear classifier, as in the paper; knn: k nearest neighbors by cosine similarity; pinv:
            linear classifier by pseudoinverse; fed: distance between training and test features; detection: object
            detection (--data voc --data-dir FOLDER).
        label: Column of a table that contains the classes; by default the run's label column.
        columns: Columns of a table to leave out because the run was trained without them (NAME drop).
        test: Second file or folder, with the test samples.
        data_dir: Folder with the files of a named data set.
        random_crops: Train the linear classifier on a new random view of each image in every epoch, as in the paper.
        restandardize: Standardize data other than the run's with the statistics of its own training samples.
        inputs: Evaluate the encoder's inputs instead of its features, as a baseline.
        device: auto, cpu, cuda or cuda:N.
        seed: Seed for the classifier and for the choice of held-out samples.
    """
    from imix.evaluation import evaluate as run_evaluate

    result = run_evaluate(
        run,
        data,
        protocol,
        label=label,
        columns=columns,
        test=test,
        data_dir=data_dir,
        random_crops=random_crops,
        restandardize=restandardize,
        inputs=inputs,
        device=device,
        seed=seed,
    )
    if os.environ.get("RANK", "0") == "0":
        print(result)


def embed(
    run: RunFolder,
    data: Data,
    out: Path,
    columns: dict[str, str] | None = None,
    keep: tuple[str, ...] = (),
    data_dir: str | None = None,
    device: str = "auto",
) -> None:
    """Write the features of every sample to a file.

    Args:
        run: Run folder.
        data: Name or file.
        out: A .parquet, .npy or .csv file.
        columns: Columns of a table to leave out because the run was trained without them (NAME drop).
        keep: Columns of a table to copy to the output, such as an id.
        data_dir: Folder with the files of a named data set.
        device: auto, cpu, cuda or cuda:N.
    """
    from imix.probes.embed import embed as run_embed

    vectors = run_embed(run, data, out, columns=columns, keep=keep, data_dir=data_dir, device=device)
    print(f"{len(vectors):,} vectors of {vectors.shape[1]} features written to {out}")


def transfer(
    runs: RunFolders,
    data: list[str],
    protocol: Literal["linear", "knn", "pinv", "fed"] = "linear",
    label: str | None = None,
    columns: dict[str, str] | None = None,
    data_dir: str | None = None,
    random_crops: bool = False,
    restandardize: bool = False,
    device: str = "auto",
    seed: int = 0,
) -> None:
    """Evaluate every run on every data set and print a table.

    Args:
        runs: Run folders.
        data: Names or files.
        protocol: As for evaluate.
        label: Column of tables that contains the classes; by default each run's label column.
        columns: Columns of tables to leave out because the runs were trained without them (NAME drop).
        data_dir: Folder with the files of named data sets.
        random_crops: Train the linear classifier on a new random view of each image in every epoch.
        restandardize: Standardize each data set with the statistics of its own training samples.
        device: auto, cpu, cuda or cuda:N.
        seed: Seed for the classifier and for the choice of held-out samples.
    """
    from imix.evaluation.transfer import format_table
    from imix.evaluation.transfer import transfer as run_transfer

    results = run_transfer(
        runs,
        data,
        protocol,
        label=label,
        columns=columns,
        data_dir=data_dir,
        random_crops=random_crops,
        restandardize=restandardize,
        device=device,
        seed=seed,
    )
    print(format_table([str(run) for run in runs], data, results))


def report(runs: RunFolders, out: Path | None = None, samples: int = 2000) -> None:
    """Write an HTML report about a run, or a comparison of several. Runs that differ only in their seed are grouped.

    Args:
        runs: Run folders.
        out: HTML file to write; it works offline. By default report.html in the run folder, or in the current folder
            for several runs.
        samples: Maximum number of samples in the maps.
    """
    from imix.reports import report as write_report

    print(f"open {write_report(runs, out, samples=samples)}")


def export(run: RunFolder, format: Literal["torchvision", "timm", "detectron2", "onnx"], out: Path) -> None:
    """Export a run's encoder to another library, and print how to load it there.

    Args:
        run: Run folder.
        format: Target library; all formats except onnx need a ResNet.
        out: A .safetensors or .pth file for torchvision and timm, .pkl for detectron2, .onnx for onnx.
    """
    from imix.run.export import export as run_export

    print(run_export(run, format, out))


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
        data: Name or file; by default the data the run was trained on.
        method: tsne, or umap (extra: umap).
        samples: Maximum number of samples in the map.
        classes: Classes to show; by default all.
        label: Column of a table to color by, which may be an input; by default the run's label column.
        columns: Columns of a table to leave out because the run was trained without them (NAME drop).
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
    """List the named data sets, or download one and print its size.

    Args:
        action: list or fetch.
        name: Data set to fetch.
        data_dir: Folder with its files; they are read and checked instead of downloaded.
    """
    from imix.data.named import DATASETS, list_datasets

    if action == "list":
        print(list_datasets())
        return
    names = [dataset.name for dataset in DATASETS.values() if dataset.kind != "detection"]
    if name not in names:
        problem = f"unknown data set {name!r}" if name else "no data set given"
        raise InputError(f"{problem}; choose from {', '.join(names)}")
    from imix.data import load

    loaded = load(name, DataSettings(data_dir=data_dir))
    test = "" if loaded.test is None else f" and {len(loaded.test):,} test"
    classes = f", {loaded.train.classes} classes" if loaded.train.labels is not None else ""
    print(f"{name}: {len(loaded.train):,} training{test} samples of shape {loaded.train.shape}{classes}")


def bench(
    data: Data = "",
    *,
    settings: tyro.conf.OmitArgPrefixes[Settings],
    data_settings: tyro.conf.OmitArgPrefixes[DataSettings],
    duration: float = 5.0,
) -> None:
    """Measure how fast a run with these settings is on this machine, what limits it, and how long it would take.

    Args:
        data: As for pretrain; by default random images of CIFAR's size.
        settings: As for pretrain.
        data_settings: As for pretrain.
        duration: Seconds per measurement; there are three.
    """
    from imix.train.bench import bench as run_bench

    print(run_bench(data or None, settings, data_settings, duration=duration))


def demo(out: Path = Path("imix-demo"), seeds: int = 3, epochs: int | None = None) -> None:
    """Show the effect of i-Mix in two minutes: N-pair without and with i-Mix on digits, without augmentation.

    Args:
        out: Folder for the runs and report.html; an earlier demo in it is replaced.
        seeds: Runs without i-Mix, and with it.
        epochs: Epochs per run; fewer for a quick look.
    """
    from imix.demo import demo as run_demo

    run_demo(out, seeds, epochs)


COMMANDS = (demo, pretrain, evaluate, embed, transfer, report, map, export, data, reproduce, bench)
