"""`imix.evaluate`: measures the quality of a frozen encoder with one of several protocols."""

import copy
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from imix.augment.image import PadCrop, RandomResizedCrop
from imix.data import Data, TensorSource
from imix.encoders import temporarily_on
from imix.encoders.standardize import Standardize
from imix.errors import InputError
from imix.probes.embed import embed
from imix.probes.features import EncodedSource
from imix.probes.fed import fed
from imix.probes.held_out import majority_accuracy, with_test_split
from imix.probes.knn import KNN, knn
from imix.probes.linear import Linear, linear
from imix.probes.pinv import PInv, pinv
from imix.probes.run_data import is_same_data, load_for_run
from imix.run import Run, as_run
from imix.run.result import Result, Split
from imix.runtime.device import pick_device, uses_bf16
from imix.settings import SMALL_IMAGE_SIZE

__all__ = ["KNN", "Linear", "PInv", "Result", "Split", "embed", "evaluate"]

PROTOCOLS = ("linear", "knn", "pinv", "fed", "detection")
HYPERPARAMETERS = {"linear": Linear, "knn": KNN, "pinv": PInv, "fed": None}


def evaluate(
    run: "Run | nn.Module | str | Path",
    data: Any = None,
    protocol: str = "linear",
    *,
    labels: Any = None,
    label: str | None = None,
    columns: Mapping[str, str] | None = None,
    test: str | None = None,
    data_dir: str | None = None,
    random_crops: bool = False,
    restandardize: bool = False,
    inputs: bool = False,
    device: str = "auto",
    seed: int = 0,
    hyperparameters: Any = None,
) -> Result:
    """Evaluate a frozen encoder on labeled data.

    Data is loaded with the run's data options, except that all of it is used even if the run was trained on a fraction.
    If the data has no test samples, a fifth of the training samples is held out, stratified by class. Samples without a
    label are ignored. The result is appended to evaluations.jsonl in the run folder.

    Parameters
    ----------
    run : Run, nn.Module, str or Path
        A run, its folder, or any module from samples (N, ...) to features (N, F).
    data : optional
        The data, in any form that `imix.pretrain` accepts. Default: the data that the run was trained on.
    protocol : {"linear", "knn", "pinv", "fed", "detection"}
        - "linear": linear classifier, the paper's protocol
        - "knn": k nearest neighbors by cosine similarity
        - "pinv": least-squares classifier, by the pseudoinverse
        - "fed": Fréchet distance between the features of training and test samples; needs no labels
        - "detection": fine-tunes an object detector; needs ``data="voc"`` and a `data_dir` in PASCAL VOC format
          (see `imix.detection`)
    labels : array of shape (N,), optional
        Labels, if `data` is an array.
    label : str, optional
        The label column, if `data` is a table. Default: the run's.
    columns : dict, optional
        Columns of a table that were not in the training data and are to be ignored, for example ``{"id": "drop"}``.
    test : str, optional
        A file or folder with the test samples.
    data_dir : str, optional
        Folder with the files of a named data set.
    random_crops : bool
        Train the linear classifier on a new random view of each image in every epoch, as in the paper: shifted by up to
        4 pixels and flipped, or cropped if images are larger than 64 pixels.
    restandardize : bool
        Standardize inputs with the mean and std of the training samples of `data` instead of the run's.
    inputs : bool
        Evaluate the preprocessed inputs of the encoder instead of its features, as a baseline.
    device : str
        "auto", "cpu", "cuda" or "cuda:N".
    seed : int
        Seed of the classifier and of the held-out split.
    hyperparameters : Linear, KNN, PInv or Detection, optional
        Hyperparameters of the protocol. Default: the paper's.

    Returns
    -------
    Result
        The metrics, with the hyperparameters and the split behind them.

    Examples
    --------
    >>> result = imix.evaluate(torch.nn.Flatten(), "digits", "knn")
    >>> f"{result.accuracy:.2f}"
    '0.98'
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"unknown protocol {protocol!r}; choose from {', '.join(PROTOCOLS)}")
    run = as_run(run)
    if protocol == "detection":
        if inputs:
            raise InputError("`inputs=True` does not apply to protocol 'detection', which fine-tunes the encoder")
        return _detection(run, data, data_dir, device, hyperparameters, seed)
    _check_hyperparameters(protocol, hyperparameters, HYPERPARAMETERS[protocol])
    data = run.config.data.name if data is None else data
    loaded = load_for_run(run, data, labels, label=label, columns=columns, test=test, data_dir=data_dir)
    needs_labels = protocol != "fed"
    if loaded.test is None and needs_labels and _was_trained_with_labels_of(run, loaded):
        raise InputError(
            f"{run.settings.method} was trained with the labels of all samples of {loaded.name}, so none of them can "
            "be held out for testing; pass test samples with `test=FILE`"
        )
    dataset, split = with_test_split(loaded, seed, labeled=needs_labels)
    assert dataset.test is not None
    if inputs and dataset.train.shape is None:
        raise InputError(f"`inputs=True` needs samples with one field; samples of {dataset.name} have several")
    torch_device = pick_device(device)
    encoder = _restandardized(run.encoder, dataset) if restandardize else run.encoder
    encoder = nn.Sequential(encoder[0], nn.Flatten()) if inputs else encoder
    augment = _random_crops(dataset, protocol) if random_crops else None
    bf16 = random_crops and uses_bf16(run.settings, torch_device)  # fp32 is affordable if samples are encoded once
    with temporarily_on(torch_device, encoder):
        train_features = EncodedSource(encoder, dataset.train, torch_device, augment, bf16)
        test_features = EncodedSource(encoder, dataset.test, torch_device, bf16=bf16)
        metrics, used, details = _measure(
            protocol, train_features, test_features, dataset.n_classes, hyperparameters, seed
        )
    confusion = details.pop("confusion", [])
    if needs_labels:
        metrics["majority_accuracy"] = majority_accuracy(dataset)
    result = Result(
        protocol,
        dataset.name,
        metrics,
        used,
        split,
        label=dataset.settings.label if needs_labels else None,
        inputs=inputs,
        random_crops=str(augment) if augment is not None else None,
        restandardized=restandardize,
        confusion=confusion,
        classes=list(dataset.class_names) if confusion else [],
        details=details,
    )
    run.add_result(result)
    return result


def _measure(
    protocol: str, train: EncodedSource, test: EncodedSource, n_classes: int, hyperparameters: Any, seed: int
) -> tuple[dict[str, float], dict[str, Any], dict[str, Any]]:
    """Return the metrics of a protocol, the hyperparameters that were used, and further details."""
    if protocol == "fed":
        return {"distance": fed(train, test)}, {}, {}
    if protocol == "linear":
        hyperparameters = hyperparameters or Linear(seed=seed)
        details = asdict(linear(train, test, n_classes, hyperparameters))
        metrics = {name: details.pop(name) for name in ("accuracy", "train_accuracy", "paper_accuracy")}
        return metrics, asdict(hyperparameters), details
    classifier, default = (knn, KNN()) if protocol == "knn" else (pinv, PInv())
    hyperparameters = hyperparameters or default
    return {"accuracy": classifier(train, test, n_classes, hyperparameters)}, asdict(hyperparameters), {}


def _detection(run: Run, data: Any, data_dir: str | None, device: str, hyperparameters: Any, seed: int) -> Result:
    """Fine-tune a detector with the run's encoder as backbone and return its average precision."""
    from imix.detection import Detection, detect

    if data not in (None, "voc") or data_dir is None:
        raise InputError(
            "detection needs `data='voc'` and `data_dir=FOLDER`, a folder in PASCAL VOC format (VOC2007 or similar)"
        )
    _check_hyperparameters("detection", hyperparameters, Detection)
    return detect(run, data_dir, hyperparameters or Detection(seed=seed), device)


def _check_hyperparameters(protocol: str, hyperparameters: Any, expected: type | None) -> None:
    """Raise InputError if the hyperparameters belong to another protocol."""
    if hyperparameters is not None and (expected is None or not isinstance(hyperparameters, expected)):
        allowed = f"{expected.__name__}(...) as its" if expected is not None else "no"
        raise InputError(f"{protocol} takes {allowed} hyperparameters; got {hyperparameters!r}")


def _was_trained_with_labels_of(run: Run, data: Data) -> bool:
    """Return whether a supervised method was trained on these samples with these labels."""
    if not run.settings.supervised or data.settings.label != run.data_settings.label:
        return False
    fingerprint = run.config.data.fingerprint
    return is_same_data(data.name, run.config.data.name) or (
        fingerprint is not None and fingerprint == data.train.fingerprint()
    )


def _restandardized(encoder: nn.Sequential, data: Data) -> nn.Sequential:
    """Return a copy of the encoder with its standardization fitted to the training samples of `data`."""
    encoder = copy.deepcopy(encoder)
    if not isinstance(encoder[0], Standardize) or not isinstance(data.train, TensorSource):
        raise InputError(
            f"`restandardize=True` needs a run that standardizes its inputs, and data in memory; got {data.name}"
        )
    encoder[0].fit(data.train.inputs)
    return encoder


def _random_crops(data: Data, protocol: str) -> nn.Module:
    """Return the augmentation of the linear classifier's training images."""
    shape = data.train.shape or ()
    if protocol != "linear" or len(shape) != 3:
        raise InputError(
            f"`random_crops=True` is for protocol 'linear' on images; got {protocol!r} on samples of shape {shape}"
        )
    if max(shape[1:]) <= SMALL_IMAGE_SIZE:
        return PadCrop()
    return RandomResizedCrop((shape[1], shape[2]), scale=(0.08, 1.0))
