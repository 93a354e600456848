"""Arrays and tensors, from memory or .npy and .npz files, as samples and labels: checked at the border."""

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from imix.batch import Batch, as_floats, map_fields
from imix.errors import InputError, first_line


class Parts(NamedTuple):
    """What a data set is made of: samples and, where there are any, labels, and the same for testing."""

    x: Any
    y: Any = None
    x_test: Any = None
    y_test: Any = None


def read_npy(path: Path) -> Parts:
    """A .npy file: samples (N, ...), no labels."""
    return Parts(_read(path, np.ndarray))


def read_npz(path: Path) -> Parts:
    """A .npz file: x (N, ...), and y (N,), x_test, y_test where there are any."""
    with _read(path, np.lib.npyio.NpzFile) as arrays:
        try:
            x, y, x_test, y_test = (arrays.get(key) for key in Parts._fields)
        except Exception as error:  # as above
            raise InputError(f"cannot read {path} as .npz: {first_line(error)}") from error
        if x is None:
            raise InputError(f"{path} needs an array 'x' (and may have 'y', 'x_test', 'y_test'); it has {arrays.files}")
    if y_test is not None and x_test is None:
        raise InputError(f"{path} has 'y_test' but no 'x_test'")
    return Parts(x, y, x_test, y_test)


def samples(inputs: Any, name: str) -> Batch:
    """Samples (N, ...) from arrays or tensors; `inputs` may be a tuple or dict of them.

    Everything becomes float32; bytes (uint8) are brought to 0..1, those of images (N, C, H, W) when they are used.
    """
    return map_fields(lambda x: _samples(x, name), _tensors(inputs))


def class_numbers(labels: Any, n: int, name: str, known: Any = None) -> tuple[Tensor, np.ndarray]:
    """Labels (N,) as 0, 1, ... and the classes these stand for: those `known`, or all there are, sorted.

    NaN, None and empty text are no labels; they become -1.
    """
    values = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
    if values.shape != (n,):
        raise InputError(f"the {n} samples of {name} need labels of shape ({n},); got {values.shape}")
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "backslashreplace")
    missing = values == "" if values.dtype.kind == "U" else values != values  # NaN
    if values.dtype.kind == "O":
        missing = np.array([value is None or value != value or value == "" for value in values], bool)
    numbers, values = np.full(n, -1), values[~missing]
    if values.dtype.kind == "f":
        if (odd := ~np.isfinite(values) | (values != np.round(values))).any():
            raise InputError(f"labels are classes, and those of {name} are numbers such as {values[odd][0]:g}")
        values = values.astype(np.int64)
    if not len(values):
        raise InputError(f"none of the samples of {name} has a label; give none at all")
    try:
        classes = np.unique(values) if known is None else known
    except TypeError as error:
        raise InputError(f"the labels of {name} are of several kinds that cannot be sorted: {error}") from error
    if not np.isin(values, classes).all():
        raise InputError(f"{name} has labels that the training samples have not: {np.setdiff1d(values, classes)[:5]}")
    numbers[~missing] = np.searchsorted(classes, values)
    return torch.from_numpy(numbers), classes


def _read(path: Path, kind: type) -> Any:
    try:
        found = np.load(path, allow_pickle=False)
    except Exception as error:  # a damaged file fails in many ways, all of them the file's fault
        raise InputError(f"cannot read {path} as {path.suffix}: {first_line(error)}") from error
    if not isinstance(found, kind):
        raise InputError(f"cannot read {path} as {path.suffix}: it holds another format")
    return found


def _tensors(inputs: Any) -> Batch:
    if isinstance(inputs, Tensor):
        if inputs.is_complex():
            raise InputError("samples must be real numbers; got a complex tensor")
        if inputs.layout != torch.strided:
            raise InputError("samples must be dense; got a sparse tensor: give x.to_dense()")
        return inputs.detach()
    if isinstance(inputs, dict):
        return {key: _tensors(value) for key, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_tensors(value) for value in inputs)
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], Tensor):
        raise InputError("a list of tensors is ambiguous: stack samples into one tensor, or give fields as a tuple")
    try:
        array = np.asarray(inputs)
    except ValueError as error:  # of rows that are not of one length
        raise InputError(
            f"samples must all have one shape ({first_line(error)}); pad them, and give their lengths or a mask as "
            "another field"
        ) from error
    if array.dtype.kind == "O" and array.ndim:  # of numbers, perhaps
        with suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        kind = f"an array of {array.dtype}" if array.ndim else type(inputs).__name__
        raise InputError(f"samples must be numbers; got {kind}; rows with text are given as a frame")
    if array.dtype != np.uint8:
        with np.errstate(over="ignore"):  # what is too large for float32 is refused by name below
            array = array.astype(np.float32, copy=False)
    return torch.from_numpy(np.require(array, requirements=["C_CONTIGUOUS", "WRITEABLE"]))  # copied only if it is not


def _samples(x: Tensor, name: str) -> Tensor:
    if x.dim() < 2 or x[:1].numel() == 0 < len(x):
        raise InputError(f"{name} must have samples along its first axis, (N, ...); got shape {tuple(x.shape)}")
    if len(x) == 0:
        raise InputError(f"there are no samples in {name}")
    if x.dim() == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] > 4 and x.shape[2] > 4:
        raise InputError(f"{name} has shape {tuple(x.shape)}; images are (N, C, H, W), with channels first")
    if x.dtype == torch.uint8:
        return x if x.dim() == 4 else as_floats(x)
    x = x.float()
    bad = ~torch.isfinite(x)
    if bad.any():
        first = tuple(int(i) for i in bad.nonzero()[0])
        raise InputError(
            f"{name} has {int(bad.sum())} values that are NaN, infinite or too large; "
            f"the first is {x[first]} at {list(first)}"
        )
    return x
