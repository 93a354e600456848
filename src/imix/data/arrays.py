"""Samples and labels from arrays and tensors, in memory or in .npy and .npz files. All input is validated here."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from imix.batch import Batch, map_fields, to_float
from imix.errors import InputError, first_line


class RawData(NamedTuple):
    """Samples and labels before they are converted to tensors."""

    x: Any
    y: Any = None
    x_test: Any = None
    y_test: Any = None
    class_names: Sequence[str] = ()
    """Names of the sorted classes; ignored if `y` has a different number of classes."""
    augment: str = "none"
    """As in `Data`."""


def read_npy(path: Path) -> RawData:
    """Read samples (N, ...) without labels from a .npy file."""
    return RawData(_read(path, np.ndarray))


def read_npz(path: Path) -> RawData:
    """Read x (N, ...) and the optional arrays y (N,), x_test and y_test from a .npz file."""
    with _read(path, np.lib.npyio.NpzFile) as arrays:
        try:
            x, y, x_test, y_test = (arrays.get(key) for key in ("x", "y", "x_test", "y_test"))
        except Exception as error:  # a damaged file can raise almost any exception
            raise InputError(f"cannot read {path} as .npz: {first_line(error)}") from error
        if x is None:
            raise InputError(
                f"{path} needs an array 'x' ('y', 'x_test' and 'y_test' are optional); it contains {arrays.files}"
            )
    if y_test is not None and x_test is None:
        raise InputError(f"{path} contains 'y_test' but no 'x_test'")
    return RawData(x, y, x_test, y_test)


def samples(inputs: Any, name: str) -> Batch:
    """Convert arrays or tensors (N, ...), or a tuple or dict of them, to tensors.

    The result is float32. uint8 is scaled to [0, 1], except images (N, C, H, W), which are scaled when they are used.
    """
    return map_fields(lambda x: _check_samples(x, name), _to_tensors(inputs))


def encode_classes(
    labels: Any, n: int, name: str, known_classes: np.ndarray | None = None
) -> tuple[Tensor, np.ndarray]:
    """Encode labels (N,) as 0, 1, ...; also return the classes in that order.

    The classes are `known_classes`, or else the sorted values of the labels. NaN, None and "" mean "no label" and
    become -1. Numbers with fractions are numeric targets: they stay floats, and there are no classes.
    """
    values = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
    if values.shape != (n,):
        raise InputError(f"labels of the {n} samples of {name} must have shape ({n},); got {values.shape}")
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "backslashreplace")
    missing = values == "" if values.dtype.kind == "U" else values != values  # NaN
    if values.dtype.kind == "O":
        missing = np.array([value is None or value != value or value == "" for value in values], bool)
    is_numeric = values.dtype.kind == "f" and bool((values[~missing] != np.round(values[~missing])).any())
    if known_classes is not None:
        is_numeric = len(known_classes) == 0
    if is_numeric or values.dtype.kind == "f":
        if np.isinf(values).any():
            raise InputError(f"the labels of {name} have infinite values")
        if is_numeric:
            return torch.from_numpy(values.astype(np.float32)), np.array([])
        values = np.where(missing, 0, values).astype(np.int64)
    values = values[~missing]
    if not len(values):
        raise InputError(f"none of the samples of {name} has a label; omit the labels instead")
    try:
        classes = np.unique(values) if known_classes is None else known_classes
    except TypeError as error:
        raise InputError(f"the labels of {name} have mixed types that cannot be sorted: {error}") from error
    if not np.isin(values, classes).all():
        unknown = np.setdiff1d(values, classes)[:5]
        raise InputError(f"{name} has labels that are not in the training samples: {unknown}")
    codes = np.full(n, -1)
    codes[~missing] = np.searchsorted(classes, values)
    return torch.from_numpy(codes), classes


def _read(path: Path, expected_type: type) -> Any:
    try:
        content = np.load(path, allow_pickle=False)
    except Exception as error:  # a damaged file can raise almost any exception
        raise InputError(f"cannot read {path} as {path.suffix}: {first_line(error)}") from error
    if not isinstance(content, expected_type):
        raise InputError(f"cannot read {path} as {path.suffix}: the file has a different format")
    return content


def _to_tensors(inputs: Any) -> Batch:
    if isinstance(inputs, Tensor):
        if inputs.is_complex():
            raise InputError("samples must be real numbers; got a complex tensor")
        if inputs.layout != torch.strided:
            raise InputError("samples must be dense; got a sparse tensor: pass x.to_dense()")
        return inputs.detach()
    if isinstance(inputs, dict):
        return {key: _to_tensors(value) for key, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_to_tensors(value) for value in inputs)
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], Tensor):
        raise InputError("a list of tensors is ambiguous: stack samples into one tensor, or pass fields as a tuple")
    try:
        array = np.asarray(inputs)
    except ValueError as error:  # rows of different lengths
        raise InputError(
            f"all samples must have the same shape ({first_line(error)}); pad them, and pass their lengths or a mask "
            "as another field"
        ) from error
    if array.dtype.kind == "O" and array.ndim:  # possibly an object array of numbers
        with suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        kind = f"an array of {array.dtype}" if array.ndim else type(inputs).__name__
        raise InputError(f"samples must be numbers; got {kind}; pass rows that contain text as a data frame")
    if array.dtype != np.uint8:
        with np.errstate(over="ignore"):  # values too large for float32 are reported by _check_samples
            array = array.astype(np.float32, copy=False)
    return torch.from_numpy(np.require(array, requirements=["C_CONTIGUOUS", "WRITEABLE"]))  # copies only if necessary


def _check_samples(x: Tensor, name: str) -> Tensor:
    if x.dim() < 2 or x[:1].numel() == 0 < len(x):
        raise InputError(f"{name} must have shape (N, ...) with samples along the first axis; got {tuple(x.shape)}")
    if len(x) == 0:
        raise InputError(f"{name} contains no samples")
    if x.dim() == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] > 4 and x.shape[2] > 4:
        raise InputError(f"{name} has shape {tuple(x.shape)}; images must be channels-first, (N, C, H, W)")
    if x.dtype == torch.uint8:
        return x if x.dim() == 4 else to_float(x)
    x = x.float()
    invalid = ~torch.isfinite(x)
    if invalid.any():
        first = tuple(int(i) for i in invalid.nonzero()[0])
        raise InputError(
            f"{name} has {int(invalid.sum())} values that are NaN, infinite or too large for float32; the first is "
            f"{x[first]} at index {list(first)}"
        )
    return x
