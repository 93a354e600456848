"""Samples and labels from arrays and tensors, in memory or in .npy and .npz files. All input is validated here."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from imix.batch import Batch, map_fields, to_float
from imix.data import mapped
from imix.data.tables.values import MAX_EXACT_INTEGER
from imix.errors import InputError, first_line
from imix.output import print_message


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
            x, x_test = (
                arrays.get(key) if (array := mapped.map_npz(path, key)) is None else array for key in ("x", "x_test")
            )
            y, y_test = arrays.get("y"), arrays.get("y_test")
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
    labels: Any, n: int, name: str, known_classes: np.ndarray | None = None, missing_label: str | None = None
) -> tuple[Tensor, np.ndarray]:
    """Encode labels (N,) as 0, 1, ...; also return the classes in that order.

    The classes are `known_classes`, or else the sorted values of the labels. NaN, None, "", masked values and
    `missing_label` mean "no label" and become -1. Numbers with fractions are numeric targets: they stay floats, with
    NaN for "no label", and there are no classes.
    """
    values, missing = _read_labels(labels, n, name)
    if missing_label is not None:
        is_named = is_label(values, missing_label)
        if known_classes is None and not is_named.any():
            note_unused_label(missing_label, name)
        missing = missing | is_named
    values = values[~missing]
    if not len(values):
        raise InputError(f"none of the samples of {name} has a label; omit the labels instead")
    is_float = values.dtype.kind == "f"
    if is_float and np.isinf(values).any():
        raise InputError(f"the labels of {name} have infinite values")
    if len(known_classes) == 0 if known_classes is not None else is_float and bool((values != np.round(values)).any()):
        return to_targets(values, missing, name), np.array([])
    if (is_float or values.dtype.kind == "u") and values.min() >= -(2**63) and values.max() < 2**63:
        values = values.astype(np.int64)  # as int64, larger numbers would overflow
    try:
        classes = np.unique(values) if known_classes is None else known_classes
        if {values.dtype.kind, classes.dtype.kind} in ({"i", "u"}, {"i", "f"}, {"u", "f"}):
            values, classes = values.astype(object), classes.astype(object)  # as floats, large numbers would coincide
        if not np.isin(values, classes).all():
            unknown = np.setdiff1d(values, classes)[:5]
            raise InputError(f"{name} has labels that are not in the training samples: {unknown}")
        numbers = np.searchsorted(classes, values)
    except TypeError as error:
        raise InputError(f"the labels of {name} have mixed types that cannot be sorted: {error}") from error
    if known_classes is None and missing_label is None:
        note_minus_one(map(str, classes), name)
    codes = np.full(n, -1)
    codes[~missing] = numbers
    return torch.from_numpy(codes), classes


def to_targets(values: Any, missing: np.ndarray, name: str) -> Tensor:
    """Return numeric targets (N,) in float32: `values` in order, and NaN where they are `missing`."""
    targets = np.full(len(missing), np.nan, np.float32)
    try:
        with np.errstate(over="ignore"):
            targets[~missing] = values
    except (TypeError, ValueError) as error:
        raise InputError(f"the labels of {name} must be numbers: {first_line(error)}") from error
    if np.isinf(targets).any():
        raise InputError(f"the labels of {name} have values that are infinite or too large for float32")
    return torch.from_numpy(targets)


def note_minus_one(classes: Iterable[str], name: str, instead: str = "`missing_label=-1`") -> None:
    """Print a note if there are more than two integer classes and one is -1, which often means "no label"."""
    names = set(classes)
    if len(names) > 2 and "-1" in names and all(text.lstrip("-").isdigit() for text in names):
        message = f"{name}: the label -1 is a class like any other; if it means no label, use {instead}"
        print_message(message)


def note_unused_label(missing_label: str, name: str) -> None:
    """Print a note that no label is the one that means "no label"."""
    print_message(f"{name}: `missing_label={missing_label!r}` is not among the labels")


def _read_labels(labels: Any, n: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Convert labels to an array (N,), and find those that are missing."""
    try:
        if isinstance(labels, Tensor):
            labels = check_tensor(labels, "labels").detach().cpu()
            labels = labels.double() if labels.is_floating_point() else labels
        values = np.asarray(labels)
        if isinstance(labels, list | tuple) and values.dtype.kind == "f" and (abs(values) >= MAX_EXACT_INTEGER).any():
            values = np.array(labels, object)
        if values.dtype.kind == "f":
            values = values.astype(np.float64)
        masked = np.ma.getmaskarray(labels) if isinstance(labels, np.ma.MaskedArray) else False
        if values.shape != (n,):
            raise InputError(f"labels of the {n} samples of {name} must have shape ({n},); got {values.shape}")
        if values.dtype.kind not in "biufOSUMm":
            raise InputError(f"labels must be numbers or text; got {values.dtype}")
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8", "backslashreplace")
        if values.dtype.kind != "O":
            missing = masked | (values == "" if values.dtype.kind == "U" else values != values)  # NaN
        else:
            missing = masked | np.array([is_missing(value) for value in values], bool)
            values = _unify_numbers(values, missing)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the labels of {name} must be numbers or text: {first_line(error)}") from error
    return values, missing


def _unify_numbers(values: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Convert objects that are numbers, some of them floats, to floats or, if they would coincide, to integers."""
    present = values[~missing].tolist()
    if not (all(isinstance(value, Real) for value in present) and any(isinstance(value, float) for value in present)):
        return values
    if all(float(value).is_integer() for value in present) and any(int(value) != float(value) for value in present):
        return np.array(
            [None if is_none else int(value) for value, is_none in zip(values, missing, strict=True)], object
        )
    return np.where(missing, np.nan, values).astype(np.float64)


def is_label(values: Any, label: str) -> np.ndarray:
    """Return which values (N,) equal this label, which is given as text; -1 and -1.0 are the same."""
    try:
        number = float(label)
    except ValueError:
        number = np.nan
    texts = {label, f"{number:.0f}"} if number.is_integer() else {label}
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return np.asarray(values == number)
    return np.array([str(value) in texts or value == number for value in values], bool)


def is_missing(value: Any) -> bool:
    """Whether a label is None, NaN, pandas.NA or ""; raises TypeError if it cannot be a label."""
    hash(value)  # raises TypeError for a list, dict or set
    if isinstance(value, Tensor):
        raise TypeError("got a tensor in an array of objects")
    if type(value).__name__ == "NAType":  # of pandas; it has no truth value
        return True
    return bool(value is None or value != value or value == "")


def _read(path: Path, expected_type: type) -> Any:
    try:
        mode: Any = "r" if path.suffix == ".npy" and path.stat().st_size >= mapped.MIN_BYTES else None
        content = np.load(path, mmap_mode=mode, allow_pickle=False)
    except Exception as error:  # a damaged file can raise almost any exception
        raise InputError(f"cannot read {path} as {path.suffix}: {first_line(error)}") from error
    if not isinstance(content, expected_type):
        raise InputError(f"cannot read {path} as {path.suffix}: the file has a different format")
    return content


def _to_tensors(inputs: Any) -> Batch:
    if isinstance(inputs, Tensor):
        return check_tensor(inputs, "samples").detach()
    if isinstance(inputs, dict):
        return {key: _to_tensors(value) for key, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_to_tensors(value) for value in inputs)
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], Tensor):
        raise InputError("a list of tensors is ambiguous: stack samples into one tensor, or pass fields as a tuple")
    rows = inputs if isinstance(inputs, list) else [inputs]
    if any((mask := np.ma.getmask(row)).dtype.kind == "b" and mask.any() for row in rows):
        raise InputError(
            "samples must not have masked values: replace them, as in x.filled(0), and pass the mask as another field; "
            "rows (N, F) may have NaN instead"
        )
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


def check_tensor(x: Tensor, name: str) -> Tensor:
    """Return a tensor that has real numbers in memory; other kinds of tensors are an error."""
    if x.is_nested:
        raise InputError(f"{name} must not be a nested tensor: pad it, and pass the lengths or a mask as another field")
    if x.layout != torch.strided:
        raise InputError(f"{name} must be dense; got a sparse tensor: pass x.to_dense()")
    for kind, is_kind in (("complex", x.is_complex()), ("quantized", x.is_quantized), ("meta", x.is_meta)):
        if is_kind:
            raise InputError(f"{name} must be real numbers; got a {kind} tensor")
    return x


def checked_input(x: Any) -> Any:
    """Return the samples: tensors are checked, and masked values of numeric rows (N, F) are replaced with NaN."""
    if isinstance(x, Tensor):
        return check_tensor(x, "samples")
    if not isinstance(x, np.ma.MaskedArray) or x.ndim != 2 or x.dtype.kind not in "biuf":
        return x
    return np.ma.filled(x.astype(float), np.nan) if np.ma.is_masked(x) else x.data


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
