"""What an encoder is worth: `evaluate` with a protocol, `embed` for the vectors themselves."""

import copy
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from imix.augment.image import PadCrop, RandomResizedCrop
from imix.data import Data, Tensors
from imix.data.standardise import Standardise
from imix.encoders import lent_to
from imix.errors import InputError
from imix.evaluation.features import Encoded
from imix.evaluation.fed import fed
from imix.evaluation.held_out import majority, with_test
from imix.evaluation.knn import KNN, knn
from imix.evaluation.linear import Linear, linear
from imix.evaluation.pinv import PInv, pinv
from imix.evaluation.reading import is_called, load_for
from imix.evaluation.vectors import embed
from imix.result import DISTANCES, Result
from imix.run import Run, as_run
from imix.settings import SMALL_SIDE
from imix.train.device import pick_device, uses_bf16

__all__ = ["KNN", "Linear", "PInv", "Result", "embed", "evaluate"]

PROTOCOLS = ("linear", "knn", "pinv", "fed", "detection")
CONSTANTS = {"linear": Linear, "knn": KNN, "pinv": PInv, "fed": None}


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
    augment: bool = False,
    standardise: bool = False,
    inputs: bool = False,
    device: str = "auto",
    seed: int = 0,
    constants: Any = None,
) -> Result:
    """What a run's frozen encoder is worth on data; `data` is what the run was trained on unless given.

    `run` may be any module, too, from samples (N, ...) to features (N, F), however it was trained.

    "linear" is the paper's linear evaluation, "knn" the cosine nearest neighbours' vote, "pinv" the pseudoinverse, all
    of labelled data; "fed" is the Fréchet distance between the features of training and test samples; "detection"
    fine-tunes a detector of objects (data="voc", `data_dir` a folder in VOC's format; see `imix.detection`).
    Data is read as the run's was, but whole where the run saw a fraction, and but for what is given: `labels` of an
    array, `label`, the column of a table that has them, `columns` that the run has not seen and that are to be left out
    ({"id": "drop"}), `test`, a file with the test samples, `data_dir`, the folder of a named data set's files. Data
    without a test part has a fifth held out, and rows without a label do not count. With `augment`, the linear
    classifier sees a new view of each training image in every epoch, as the paper's did: shifted by up to 4 pixels and
    mirrored, or cropped where images are larger than 64. With `standardise`, other data than the run's is brought to
    mean 0 and deviation 1 by its own training samples. With `inputs`, not the features are evaluated but the numbers
    that the encoder sees, which is what features are to be compared with. `constants` are a `Linear`, `KNN`, `PInv` or
    `Detection` other than the default. The result is added to the run folder's evaluations.jsonl.
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"unknown protocol {protocol!r}; choose from {', '.join(PROTOCOLS)}")
    run = as_run(run)
    if protocol == "detection":
        if inputs:
            raise InputError("detection fine-tunes the encoder; inputs=True is for the other protocols")
        return _detection(run, data, data_dir, device, constants, seed)
    _check_constants(protocol, constants, CONSTANTS[protocol])
    data = run.config["data"]["name"] if data is None else data
    loaded = load_for(run, data, labels, label=label, columns=columns, test=test, data_dir=data_dir)
    if loaded.test is None and protocol not in DISTANCES and _labels_were_seen(run, loaded):
        raise InputError(
            f"{run.settings.method} learned from the labels of all samples of {loaded.name}, so that none can be held "
            "out to test it; give others with test=FILE (--test FILE)"
        )
    dataset, split = with_test(loaded, seed, labelled=protocol not in DISTANCES)
    if inputs and dataset.train.shape is None:
        raise InputError(f"inputs=True is for samples of one field; those of {dataset.name} have several")
    where = pick_device(device)
    encoder = _restandardised(run.encoder, dataset) if standardise else run.encoder
    encoder = nn.Sequential(encoder[0], nn.Flatten()) if inputs else encoder
    assert dataset.test is not None
    views = _views(dataset, protocol) if augment else None
    bf16 = augment and uses_bf16(run.settings, where)  # a hundred passes; one pass can be exact
    with lent_to(where, encoder):
        train = Encoded(encoder, dataset.train, where, views, bf16)
        held_out = Encoded(encoder, dataset.test, where, bf16=bf16)
        value, used, details = _measure(protocol, train, held_out, dataset.classes, constants, seed)
    if "seed" in split and used.get("seed", split["seed"]) != split["seed"]:
        split["split_seed"] = split.pop("seed")  # what was held out was not drawn by the classifier's
    told = (
        used
        | ({"of": "inputs"} if inputs else {})
        | split
        | ({"views": str(views)} if augment else {})
        | ({"standardised": True} if standardise else {})
    )
    if protocol not in DISTANCES:
        told |= {"label": dataset.reading.label} if dataset.reading.label else {}
        details["majority_accuracy"] = majority(dataset)
        details |= {"classes": list(dataset.class_names)} if details.get("confusion") and dataset.class_names else {}
    result = Result(protocol, dataset.name, value, told, details)
    run.keep(result)
    return result


def _measure(
    protocol: str, train: Encoded, test: Encoded, classes: int, constants: Any, seed: int
) -> tuple[float, dict[str, Any], dict[str, Any]]:
    """What a protocol finds, the constants behind it, and its details."""
    if protocol == "fed":
        return fed(train, test), {}, {}
    if protocol == "linear":
        constants = constants or Linear(seed=seed)
        details = asdict(linear(train, test, classes, constants))
        return details.pop("accuracy"), asdict(constants), details
    kind, vote = (KNN, knn) if protocol == "knn" else (PInv, pinv)
    constants = constants or kind()
    return vote(train, test, classes, constants), asdict(constants), {}


def _detection(run: Run, data: Any, folder: str | None, device: str, constants: Any, seed: int) -> Result:
    """Average precision of a detector that begins with the run's encoder."""
    from imix.detection import Detection, detect

    if data not in (None, "voc") or folder is None:
        raise InputError(
            "detection needs data='voc' and data_dir=FOLDER, with VOC2007 or images of your own in its format"
        )
    _check_constants("detection", constants, Detection)
    return detect(run, folder, constants or Detection(seed=seed), device)


def _check_constants(protocol: str, constants: Any, kind: type | None) -> None:
    """Refuse the constants of another protocol."""
    if constants is not None and (kind is None or not isinstance(constants, kind)):
        takes = f"{kind.__name__}(...) as its" if kind is not None else "no"
        raise InputError(f"{protocol} takes {takes} constants; got {constants!r}")


def _labels_were_seen(run: Run, data: Data) -> bool:
    """Whether the run was trained on these samples with these labels."""
    if not run.settings.supervised or data.reading.label != run.reading.label:
        return False
    told = run.config["data"]
    known = told.get("fingerprint")
    return is_called(data.name, told["name"]) or (known is not None and known == data.train.fingerprint())


def _restandardised(encoder: nn.Sequential, data: Data) -> nn.Sequential:
    """The encoder with its standardisation fitted to the training samples of other data."""
    encoder = copy.deepcopy(encoder)
    if not isinstance(encoder[0], Standardise) or not isinstance(data.train, Tensors):
        raise InputError(f"standardise=True is for images and arrays held in memory; {data.name} is neither")
    encoder[0].fit(data.train.inputs)
    return encoder


def _views(data: Data, protocol: str) -> nn.Module:
    """How the linear classifier's training images are seen."""
    shape = data.train.shape or ()
    if protocol != "linear" or len(shape) != 3:
        raise InputError(f"augment=True is for the linear evaluation of images; got {protocol} of samples of {shape}")
    return PadCrop() if max(shape[1:]) <= SMALL_SIDE else RandomResizedCrop((shape[1], shape[2]), scale=(0.08, 1.0))
