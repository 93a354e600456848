"""`imix.evaluate`: measures the quality of a frozen encoder, compared with its inputs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import nn

from imix.augment.image import weak_crops
from imix.data import Data
from imix.encoders import temporarily_on
from imix.errors import InputError
from imix.evaluation.fine_tuned import measure_fine_tuned
from imix.evaluation.protocols import HYPERPARAMETERS, ON_FEATURES, measure_batches, measure_features
from imix.evaluation.samples import Samples, as_representation, combined, encode, restandardized
from imix.evaluation.summary import BOTH, FineTuned, Summary, describe_unlabeled, summarize
from imix.probes.embed import embed
from imix.probes.features import EncodedSource
from imix.probes.held_out import majority_accuracy, with_test_split
from imix.probes.knn import KNN
from imix.probes.linear import Linear
from imix.probes.linear_paper import LinearPaper
from imix.probes.pinv import PInv
from imix.probes.run_data import is_same_data, load_for_run, split_values
from imix.probes.trees import Trees
from imix.run import Run, as_run
from imix.run.result import Result, Split
from imix.runtime import distributed, launch
from imix.runtime.device import pick_device, uses_bf16

__all__ = ["KNN", "Linear", "LinearPaper", "PInv", "Result", "Split", "Summary", "Trees", "embed", "evaluate"]

PROTOCOLS = ("linear", "knn", "trees", "pinv", "fed", "detection", "linear-paper")
MAX_INPUTS = 10_000  # inputs with more values per sample are not evaluated in the summary
MAX_TREE_COLUMNS = 500  # the summary includes trees for tables with up to this many columns


class EvaluateOptions(TypedDict, total=False):
    """The options of `imix.evaluate`."""

    labels: Any
    label: str | None
    missing_label: str | None
    columns: Mapping[str, str] | None
    path_column: str | None
    test: str | None
    data_dir: str | None
    group: Any
    time: Any
    labels_per_class: Sequence[int]
    draws: int
    trees: bool | None
    finetune: bool
    random_crops: bool
    restandardize: bool
    inputs: bool
    device: str
    seed: int
    hyperparameters: Any


@overload
def evaluate(
    run: "Run | nn.Module | str | Path", data: Any = ..., protocol: None = ..., **options: Unpack[EvaluateOptions]
) -> Summary: ...
@overload
def evaluate(
    run: "Run | nn.Module | str | Path", data: Any = ..., *, protocol: str, **options: Unpack[EvaluateOptions]
) -> Result: ...
@overload
def evaluate(
    run: "Run | nn.Module | str | Path", data: Any, protocol: str, **options: Unpack[EvaluateOptions]
) -> Result: ...


def evaluate(
    run: "Run | nn.Module | str | Path",
    data: Any = None,
    protocol: str | None = None,
    *,
    labels: Any = None,
    label: str | None = None,
    missing_label: str | None = None,
    columns: Mapping[str, str] | None = None,
    path_column: str | None = None,
    test: str | None = None,
    data_dir: str | None = None,
    group: Any = None,
    time: Any = None,
    labels_per_class: Sequence[int] = (10, 50, 250),
    draws: int = 5,
    trees: bool | None = None,
    finetune: bool = False,
    random_crops: bool = False,
    restandardize: bool = False,
    inputs: bool = False,
    device: str = "auto",
    seed: int = 0,
    hyperparameters: Any = None,
) -> Result | Summary:
    """Evaluate a frozen encoder on labeled data.

    Without `protocol`, returns a summary that compares features and inputs: linear and kNN classifiers on the
    features, linear classifiers and trees on the inputs and on inputs and features together, with all labels and with a
    few labels per class. It answers whether the features are worth having.

    Data is loaded with the run's data options, except that all of it is used even if the run was trained on a fraction.
    If the data has no test samples, a fifth of the training samples is held out, stratified by class. Samples without a
    label are ignored. Results are appended to evaluations.jsonl in the run folder. If the script is started by
    torchrun, call this function on every rank: they share the encoding, and all get the result.

    Parameters
    ----------
    run : Run, nn.Module, str or Path
        A run, its folder, or any module from samples (N, ...) to features (N, F).
    data : optional
        The data, in any form that `imix.pretrain` accepts. Default: the data that the run was trained on.
    protocol : {"linear", "knn", "trees", "pinv", "fed", "detection", "linear-paper"}, optional
        A single protocol instead of the summary:

        - "linear": logistic regression on standardized features; the L2 penalty is chosen by cross-validation
        - "knn": k nearest neighbors by cosine similarity
        - "trees": gradient boosting or extremely randomized trees, the better one in cross-validation
        - "pinv": least-squares classifier, by the pseudoinverse
        - "fed": Fréchet distance between the features of training and test samples; needs no labels
        - "detection": fine-tunes an object detector; needs ``data="voc"`` and a `data_dir` in PASCAL VOC format
          (see `imix.detection`)
        - "linear-paper": linear classifier trained by SGD, as in the paper
    labels : array of shape (N,), optional
        Labels, if `data` is an array.
    label : str, optional
        The label column, if `data` is a table. Default: the run's.
    missing_label : str, optional
        Label that means "no label", such as "-1". Default: the run's.
    columns : dict, optional
        Columns of a table that were not in the training data and are to be ignored, for example ``{"id": "drop"}``.
    path_column : str, optional
        Column of a table with the paths of the image or audio files. Default: the run's.
    test : str, optional
        A file or folder with the test samples.
    data_dir : str, optional
        Folder with the files of a named data set.
    group : str or array of shape (N,), optional
        A column of the table, or the values themselves, such as patient or machine. Samples of the same group are held
        out together, so that no group is in both training and test samples.
    time : str or array of shape (N,), optional
        A column of the table, or the values themselves: numbers or dates. The latest fifth is held out.
    labels_per_class : sequence of int
        Numbers of labels per class with which the summary trains classifiers, in addition to all labels.
    draws : int
        Number of random draws of these labels.
    trees : bool, optional
        Whether the summary includes trees. Default: for tables with up to 500 encoded columns.
    finetune : bool
        Whether the summary has a row for the encoder fine-tuned as by `imix.finetune` with default options. It takes
        longer than the other rows, because a model is trained for each draw of labels.
    random_crops : bool
        Train the classifier of "linear-paper" on a new random view of each image in every epoch, as in the paper:
        shifted by up to 4 pixels and flipped, or cropped if images are larger than 64 pixels.
    restandardize : bool
        Standardize inputs with the mean and std of the training samples of `data` instead of the run's.
    inputs : bool
        Evaluate the preprocessed inputs of the encoder instead of its features, as a baseline.
    device : str
        "auto", "cpu", "cuda" or "cuda:N".
    seed : int
        Seed of the classifiers, of the draws and of the held-out split.
    hyperparameters : Linear, KNN, Trees, PInv, LinearPaper or Detection, optional
        Hyperparameters of the protocol.

    Returns
    -------
    Summary or Result
        The summary; or the metrics of one protocol, with the hyperparameters and the split behind them.

    Examples
    --------
    >>> result = imix.evaluate(torch.nn.Flatten(), "digits", "knn")
    >>> f"{result.accuracy:.2f}"
    '0.98'
    """
    _check_options(protocol, hyperparameters, inputs, random_crops, labels_per_class, draws, finetune)
    run = as_run(run)
    if protocol == "detection":
        return _detection(run, data, data_dir, device, hyperparameters, seed)
    data = run.config.data.name if data is None else data
    with launch.join_ranks() as divide:
        options: Any = {"missing_label": missing_label, "columns": columns, "path_column": path_column}
        loaded = load_for_run(run, data, labels, label=label, test=test, data_dir=data_dir, **options)
        has_labels = loaded.train.labels is not None or protocol is not None or finetune
        needs_labels = protocol != "fed" and has_labels
        if loaded.test is None and needs_labels and _was_trained_with_labels_of(run, loaded):
            raise InputError(
                f"the run was trained with the labels of all samples of {loaded.name}, so none of them can be held out "
                "for testing; pass test samples with `test=FILE`"
            )
        if loaded.train.is_numeric and protocol not in (None, "fed", *ON_FEATURES):
            raise InputError(f"protocol {protocol!r} needs classes; the labels of {loaded.name} are numbers")
        groups, times = split_values(data, loaded, group, time)
        dataset, split = with_test_split(loaded, seed, needs_labels, groups, times)
        assert dataset.test is not None
        torch_device = pick_device(device)
        encoder = restandardized(run.encoder, dataset) if restandardize else run.encoder
        template = Result(
            protocol or "none",
            dataset.name,
            {"majority_accuracy": majority_accuracy(dataset)} if needs_labels and dataset.n_classes else {},
            {},
            split,
            label=dataset.settings.label if needs_labels else None,
            representation="inputs" if inputs else "features",
            restandardized=restandardize,
            classes=list(dataset.class_names),
            progress=run.progress,
        )
        with temporarily_on(torch_device, encoder):
            measure: Callable[[], Any]
            if protocol is None:
                fine_tuned = None
                if finetune:  # starts from `encoder`, which may have been restandardized
                    tuned_run = replace(run, encoder=encoder)
                    fine_tuned = partial(measure_fine_tuned, tuned_run, dataset, torch_device, template, seed)
                encoded = _representations(encoder, dataset, torch_device, divide)
                measure = partial(
                    _summary, encoded, dataset, template, labels_per_class, draws, trees, seed, fine_tuned
                )
            else:
                used = hyperparameters or _default_hyperparameters(protocol, seed)
                evaluated = as_representation(encoder, dataset, template.representation)
                if protocol in ON_FEATURES:
                    samples = encode(evaluated, dataset, torch_device, divide)
                    measure = partial(measure_features, protocol, samples, template, used)
                else:
                    augment = weak_crops(dataset.train.shape) if random_crops else None
                    # Samples that are encoded only once are encoded in fp32.
                    bf16 = random_crops and uses_bf16(run.settings, torch_device)
                    train = EncodedSource(evaluated, dataset.train, torch_device, augment, bf16)
                    test_source = EncodedSource(evaluated, dataset.test, torch_device, bf16=bf16)
                    if divide and augment is None:  # rank 0 draws all random crops
                        train, test_source = train.by_all_ranks(), test_source.by_all_ranks()
                    template = replace(template, random_crops=str(augment) if augment is not None else None)
                    measure = partial(measure_batches, protocol, train, test_source, dataset.n_classes, template, used)
            result: Result | Summary = distributed.on_rank_0(measure) if divide else measure()
        if distributed.rank() == 0:
            run.add_result(*(result.results if isinstance(result, Summary) else [result]))
    return result


def _representations(encoder: nn.Sequential, data: Data, device: torch.device, divide: bool) -> dict[str, Samples]:
    """Return the features and, if there are labels and samples are not too large, the inputs."""
    representations, shape = {"features": encode(encoder, data, device, divide)}, data.train.shape
    if data.train.labels is not None and shape is not None and math.prod(shape) <= MAX_INPUTS:
        representations["inputs"] = encode(as_representation(encoder, data, "inputs"), data, device, divide)
    return representations


def _summary(
    representations: dict[str, Samples],
    data: Data,
    template: Result,
    labels_per_class: Sequence[int],
    draws: int,
    trees: bool | None,
    seed: int,
    fine_tuned: FineTuned | None,
) -> Summary:
    """Evaluate features, inputs, and both together; without labels, describe the features alone."""
    features, inputs, shape = representations["features"], representations.get("inputs"), data.train.shape
    if data.train.labels is None:
        return describe_unlabeled(features, template)
    if inputs is not None:
        representations = representations | {BOTH: combined(inputs, features)}
        if trees is None:
            trees = data.table is not None and inputs.train.shape[1] <= MAX_TREE_COLUMNS
    summary = summarize(representations, template, labels_per_class, draws, bool(trees), seed, fine_tuned)
    if inputs is None:
        reason = "samples have several fields" if shape is None else f"a sample has {math.prod(shape):,} values"
        summary.warnings.append(f"the inputs were not evaluated for comparison, because {reason}")
    return summary


def _check_options(
    protocol: str | None,
    hyperparameters: Any,
    inputs: bool,
    random_crops: bool,
    labels_per_class: Sequence[int],
    draws: int,
    finetune: bool,
) -> None:
    """Raise InputError for options that do not exist or do not apply."""
    if protocol is not None and protocol not in PROTOCOLS:
        raise InputError(f"unknown protocol {protocol!r}; choose from {', '.join(PROTOCOLS)}")
    if inputs and protocol in (None, "detection"):
        reason = "fine-tunes the encoder" if protocol else "includes them"
        raise InputError(f"`inputs` does not apply to {protocol or 'the summary'}, which {reason}")
    if finetune and protocol is not None:
        raise InputError(f"`finetune` adds a row to the summary, so it cannot be used with `protocol={protocol!r}`")
    if random_crops and protocol != "linear-paper":
        raise InputError(f"`random_crops` needs `protocol='linear-paper'`; got {protocol!r}")
    if not all(isinstance(n, int) and n > 0 for n in labels_per_class):
        raise InputError(f"`labels_per_class` must be ints above 0; got {labels_per_class!r}")
    if not (isinstance(draws, int) and draws > 1):
        raise InputError(f"`draws` must be an int above 1; got {draws!r}")
    if hyperparameters is not None and protocol != "detection":
        expected = HYPERPARAMETERS.get(protocol or "")
        if expected is None or not isinstance(hyperparameters, expected):
            allowed = "no" if expected is None else f"{expected.__name__}(...) as its"
            raise InputError(f"{protocol or 'the summary'} takes {allowed} hyperparameters; got {hyperparameters!r}")


def _default_hyperparameters(protocol: str, seed: int) -> Any:
    """Return the default hyperparameters of a protocol, with the seed where there is one."""
    if protocol not in HYPERPARAMETERS:
        return None
    hyperparameters = HYPERPARAMETERS[protocol]()
    return replace(hyperparameters, seed=seed) if hasattr(hyperparameters, "seed") else hyperparameters


def _detection(run: Run, data: Any, data_dir: str | None, device: str, hyperparameters: Any, seed: int) -> Result:
    """Fine-tune a detector with the run's encoder as backbone and return its average precision."""
    from imix.detection import Detection, detect

    if data not in (None, "voc") or data_dir is None:
        raise InputError(
            "detection needs `data='voc'` and `data_dir=FOLDER`, a folder in PASCAL VOC format (VOC2007 or similar)"
        )
    if hyperparameters is not None and not isinstance(hyperparameters, Detection):
        raise InputError(f"detection takes Detection(...) as its hyperparameters; got {hyperparameters!r}")
    return detect(run, data_dir, hyperparameters or Detection(seed=seed), device)


def _was_trained_with_labels_of(run: Run, data: Data) -> bool:
    """Return whether the run was trained or fine-tuned on these samples with these labels."""
    uses_labels = run.settings.supervised or run.config.fine_tuning is not None
    if not uses_labels or data.settings.label != run.data_settings.label:
        return False
    fingerprint = run.config.data.fingerprint
    return is_same_data(data.name, run.config.data.name) or (
        fingerprint is not None and fingerprint == data.train.fingerprint()
    )
