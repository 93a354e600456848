"""The subcommands of `imix`, one function each: the parameters are the flags, the docstring is the help text.

Implementations are imported when a command is called, so that `imix --help` starts quickly.
"""

import os
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from imix.cli.exits import EXIT_RESUMABLE, exit_with, with_flags
from imix.cli.flags import (
    RUN,
    ConfigFile,
    DataFlags,
    FineTuningFlags,
    LabelFlags,
    ProtocolFlags,
    ReadFlags,
    TrainingFlags,
)
from imix.errors import InputError
from imix.output import print_result
from imix.runtime.interrupts import STOP_SIGNALS, handle_signals
from imix.settings import DataSettings, Settings


def pretrain(
    data: str,
    /,
    *,
    out: Annotated[Path, Parameter(group=RUN)],
    config: ConfigFile = None,
    resume: Annotated[bool, Parameter(group=RUN)] = False,
    overwrite: Annotated[bool, Parameter(group=RUN)] = False,
    minutes: Annotated[float | None, Parameter(group=RUN)] = None,
    settings: TrainingFlags = TrainingFlags(),
    data_settings: DataFlags = DataFlags(),
) -> None:
    """Train an encoder on data; labels are not needed.

    Parameters
    ----------
    data
        Name of a data set (see `imix data list`), a table (.csv, .parquet), a folder or pattern of images or audio
        files, arrays (.npy: samples; .npz: x, optionally y, x_test, y_test), or a folder or pattern of tables or tar
        shards to stream, such as 'shards/{000..099}.tar'.
    out
        Run folder to write.
    config
        JSON file with training and data settings, such as the config.json of a run. Flags override it.
    resume
        Continue the run in this folder, if there is one.
    overwrite
        Replace the run in this folder.
    minutes
        With --epochs auto, the time limit for training: the number of epochs is limited to what fits.
    """
    with handle_signals(_stop_before_start, *STOP_SIGNALS):  # until the training installs its own handler
        from imix.train.pretrain import pretrain as run_pretrain

        objects = Settings(**vars(settings)), DataSettings(**vars(data_settings))
        run = run_pretrain(data, *objects, out=out, resume=resume, overwrite=overwrite, minutes=minutes)
    if os.environ.get("RANK", "0") == "0":
        assert run.path is not None
        print_result(f"encoder written to {run.path}/encoder.safetensors", "next:", *_next_commands(run.path, data))


def _next_commands(run: Path, data: str) -> list[str]:
    """Commands that use a new run, for a shell."""
    commands = (
        ("evaluate", str(run)),
        ("embed", str(run), data, "--out", str(run / "features.parquet")),
        ("report", str(run)),
    )
    return [f"  {shlex.join(['imix', *words])}" for words in commands]


def _stop_before_start(signal_number: int, frame: Any) -> None:
    exit_with("stopped before training started; to continue, run the same command with --resume", EXIT_RESUMABLE)


def evaluate(
    run: Path,
    /,
    *,
    data: str | None = None,
    protocol: Literal["linear", "knn", "trees", "pinv", "fed", "detection", "linear-paper"] | None = None,
    test: str | None = None,
    inputs: bool = False,
    group: str | None = None,
    time: str | None = None,
    labels_per_class: tuple[int, ...] = (10, 50, 250),
    draws: int = 5,
    trees: bool | None = None,
    finetune: bool = False,
    flags: ProtocolFlags = ProtocolFlags(),
) -> None:
    """Evaluate the features of a run's frozen encoder on the run's data or on other data.

    Without --protocol, prints a summary that compares features and inputs: linear and kNN classifiers on the features,
    linear classifiers and trees on the inputs and on both together, with all labels and with a few labels per class.

    Parameters
    ----------
    run
        Run folder.
    data
        Name or file; by default the data the run was trained on.
    protocol
        A single protocol. linear: logistic regression, its L2 penalty chosen by cross-validation; knn: k nearest
        neighbors by cosine similarity; trees: gradient boosting or extremely randomized trees; pinv: linear classifier
        by pseudoinverse; fed: distance between training and test features; detection: object detection (--data voc
        --data-dir FOLDER); linear-paper: linear classifier trained by SGD, as in the paper.
    test
        Second file or folder, with the test samples.
    inputs
        With --protocol, evaluate the encoder's inputs instead of its features.
    group
        Column of a table, such as patient or machine. Samples with the same value are held out together. Only for
        data without test samples.
    time
        Column of a table with numbers or dates. The latest fifth of the samples is held out. Only for data without
        test samples.
    labels_per_class
        Numbers of labels per class in the summary, in addition to all labels.
    draws
        Number of random draws of these labels.
    trees
        Whether the summary includes trees; by default for tables with up to 500 encoded columns.
    finetune
        Add a row to the summary for the encoder, fine-tuned by imix finetune with default options. It takes longer
        than the other rows, because a model is trained for each draw of labels.
    """
    from imix.evaluation import evaluate as run_evaluate

    summary_options: Any = {"labels_per_class": labels_per_class, "draws": draws, "trees": trees, "finetune": finetune}
    splits: Any = {"test": test, "group": group, "time": time}
    result = run_evaluate(run, data, protocol, inputs=inputs, **splits, **summary_options, **vars(flags))
    if os.environ.get("RANK", "0") == "0":
        print_result(*with_flags(str(result)).split("\n"))


def embed(run: Path, data: str, /, *, out: Path, keep: tuple[str, ...] = (), flags: ReadFlags = ReadFlags()) -> None:
    """Write the features of every sample to a file.

    Parameters
    ----------
    run
        Run folder.
    data
        Name or file.
    out
        A .parquet, .npy or .csv file.
    keep
        Columns of a table to copy to the output, such as an id.
    """
    from imix.probes.embed import embed as run_embed

    vectors = run_embed(run, data, out, keep=keep, **vars(flags))
    if os.environ.get("RANK", "0") == "0":
        print_result(f"{len(vectors):,} vectors of {vectors.shape[1]} features written to {out}")


def finetune(
    run: Path,
    data: str | None = None,
    /,
    *,
    out: Path,
    overwrite: bool = False,
    flags: LabelFlags = LabelFlags(),
    settings: FineTuningFlags = FineTuningFlags(),
) -> None:
    """Train a classifier or regressor from a run's encoder and labels; a few labels may be enough.

    Parameters
    ----------
    run
        Run folder.
    data
        Name or file of the labeled data; by default the data the run was trained on.
    out
        Run folder to write; predict reads it.
    overwrite
        Replace the run in this folder.
    """
    from imix.train.finetune import finetune as run_finetune

    tuned = run_finetune(run, data, out=out, overwrite=overwrite, **vars(flags), **vars(settings))
    n_classes = len(tuned.config.classes)
    model = f"classifier for {n_classes} classes" if n_classes else "regressor"
    print_result(f"{model} written to {out}; next: imix predict {shlex.quote(str(out))} DATA --out FILE")


def predict(run: Path, data: str, /, *, out: Path, keep: tuple[str, ...] = (), flags: ReadFlags = ReadFlags()) -> None:
    """Write the predictions of a fine-tuned run to a file: classes and probabilities, or numbers.

    Parameters
    ----------
    run
        Folder written by finetune.
    data
        Name or file.
    out
        A .parquet or .csv file.
    keep
        Columns of a table to copy to the output, such as an id.
    """
    from imix.probes.predict import predict as run_predict

    predictions = run_predict(run, data, out, keep=keep, **vars(flags))
    print_result(f"{len(predictions.probabilities):,} predictions written to {out}")


def transfer(
    runs: list[Path],
    /,
    *,
    data: list[str],
    protocol: Literal["linear", "knn", "trees", "pinv", "fed", "linear-paper"] = "linear",
    flags: ProtocolFlags = ProtocolFlags(),
) -> None:
    """Evaluate every run on every data set and print a table.

    Parameters
    ----------
    runs
        Run folders.
    data
        Names or files.
    protocol
        As for evaluate.
    """
    from imix.evaluation.transfer import format_table
    from imix.evaluation.transfer import transfer as run_transfer

    results = run_transfer(runs, data, protocol, **vars(flags))
    if os.environ.get("RANK", "0") == "0":
        print_result(*format_table([str(run) for run in runs], data, results))


def report(
    runs: list[Path],
    /,
    *,
    out: Path | None = None,
    samples: int = 2000,
    names: Annotated[tuple[str, ...], Parameter(name=["--names", "--name"])] = (),
    watch: bool = False,
) -> None:
    """Write an HTML report about one or several runs. Runs that differ only in their seed are grouped.

    Parameters
    ----------
    runs
        Run folders.
    out
        HTML file to write; it works offline. By default report.html in the run folder, or in the current folder for
        several runs.
    samples
        Maximum number of samples in the maps.
    names
        Names of the runs on the page, one for each; by default the names of their folders.
    watch
        Update the report until the runs have stopped training; the page reloads itself.
    """
    from imix.reports import report as write_report

    print_result(f"open {write_report(runs, out, samples=samples, names=names, watch=watch)}")


def map(
    run: Path,
    /,
    *,
    out: Path,
    data: str | None = None,
    method: Literal["tsne", "umap"] = "tsne",
    samples: int = 2000,
    classes: tuple[str, ...] = (),
    flags: LabelFlags = LabelFlags(),
) -> None:
    """Draw a map of a run's features, colored by class or by the column given with --label, which may be an input.

    Parameters
    ----------
    run
        Run folder.
    out
        An .svg or .png file.
    data
        Name or file; by default the data the run was trained on.
    method
        tsne, or umap (extra: umap).
    samples
        Maximum number of samples in the map.
    classes
        Classes to show; by default all.
    """
    from imix.reports.maps import draw_map

    print_result(f"open {draw_map(run, out, data, method, samples, classes, **vars(flags))}")


def export(
    run: Path,
    /,
    *,
    format: Literal["torchvision", "timm", "detectron2", "onnx", "huggingface"],
    out: Path,
    overwrite: bool = False,
) -> None:
    """Export a run's encoder to another library, or as a folder for the Hugging Face Hub, and print how to load it.

    Parameters
    ----------
    run
        Run folder.
    format
        Target. torchvision, timm and detectron2 need a ResNet. huggingface writes weights, config and a model card,
        which imix loads like a run; timm and torchvision load the architectures that they support.
    out
        A .safetensors or .pth file for torchvision and timm, .pkl for detectron2, .onnx for onnx; a new or empty folder
        for huggingface.
    overwrite
        Replace a folder that an earlier export wrote. Files are always replaced.
    """
    from imix.run.export import export as run_export

    print_result(*run_export(run, format, out, overwrite=overwrite).split("\n"))


def data(action: Literal["list", "fetch"], name: str = "", /, *, data_dir: str | None = None) -> None:
    """List the named data sets, or download one and print its size.

    Parameters
    ----------
    action
        list or fetch.
    name
        Data set to fetch.
    data_dir
        Folder with its files; they are read and checked instead of downloaded.
    """
    from imix.data.named import DATASETS, list_datasets

    if action == "list":
        print_result(*with_flags(list_datasets()).split("\n"))
        return
    names = [dataset.name for dataset in DATASETS.values() if dataset.kind != "detection"]
    if name not in names:
        problem = f"unknown data set {name!r}" if name else "no data set given"
        raise InputError(f"{problem}; choose from {', '.join(names)}")
    from imix.data import load

    loaded = load(name, DataSettings(data_dir=data_dir))
    test = "" if loaded.test is None else f" and {len(loaded.test):,} test"
    classes = f", {loaded.train.n_classes} classes" if loaded.train.labels is not None else ""
    print_result(f"{name}: {len(loaded.train):,} training{test} samples of shape {loaded.train.shape}{classes}")


def bench(
    data: str | None = None,
    /,
    *,
    config: ConfigFile = None,
    duration: Annotated[float, Parameter(group=RUN)] = 5.0,
    settings: TrainingFlags = TrainingFlags(),
    data_settings: DataFlags = DataFlags(),
) -> None:
    """Measure the training speed of these settings on this machine, find the bottleneck, and estimate the duration.

    Parameters
    ----------
    data
        As for pretrain; by default random images of CIFAR's size.
    config
        As for pretrain.
    duration
        Seconds per measurement; there are three.
    """
    from imix.train.bench import bench as run_bench

    result = run_bench(data, Settings(**vars(settings)), DataSettings(**vars(data_settings)), duration=duration)
    print_result(*str(result).split("\n"))


def demo(*, out: Path = Path("imix-demo"), seeds: int = 3, epochs: int | None = None) -> None:
    """Learn from unlabeled digits, then classify digits with ten labels per class. Takes one to two minutes.

    Parameters
    ----------
    out
        Folder for the runs and report.html; an earlier demo in it is replaced.
    seeds
        Number of runs per configuration.
    epochs
        Epochs of pretraining; by default 50.
    """
    from imix.demo import demo as run_demo

    run_demo(out, seeds, epochs)
