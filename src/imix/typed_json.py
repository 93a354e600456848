"""Builds dataclasses from JSON, with every value checked against its type hint. Imports no torch."""

import functools
import reprlib
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from imix.errors import InputError

T = TypeVar("T")
JSON_TYPES = {str: "a string", int: "an integer", float: "a number", bool: "true or false", dict: "an object"}


def build(cls: type[T], value: Any, name: str = "") -> T:
    """Build a dataclass from a JSON object.

    Parameters
    ----------
    cls : type
        A dataclass of numbers, strings, tuples, lists, dicts and other dataclasses, each possibly None. A nested
        dataclass with a `from_json` method is built with that method.
    value : object
        What `json.loads` returned. Fields that it lacks get their defaults. Unknown or missing fields, and values of
        another type, raise InputError.
    name : str
        Where the value comes from, for error messages.

    Examples
    --------
    >>> from imix.encoders.mel import Clip
    >>> build(Clip, {"samples": 4000})
    Clip(sample_rate=16000, samples=4000, n_mels=32)
    >>> build(Clip, {"samples": "long"}, "clip")
    Traceback (most recent call last):
    imix.errors.InputError: clip.samples must be an integer; got 'long'
    """
    prefix = f"{name}." if name else ""
    if not isinstance(value, dict):
        raise InputError(f"{name or 'the value'} must be an object; got {reprlib.repr(value)}")
    kinds, required = _fields(cls)  # type: ignore[arg-type]
    for key in value:
        if key not in kinds:
            raise InputError(f"unknown key {reprlib.repr(key)}{f' in {name}' if name else ''}")
    for key in required:
        if key not in value:
            raise InputError(f"{prefix}{key} is missing")
    return cls(**{key: _convert(kinds[key], item, f"{prefix}{key}") for key, item in value.items()})


@functools.cache
def _fields(cls: Any) -> tuple[dict[str, Any], list[str]]:
    """The type hints of a dataclass's fields, and the names of those without a default."""
    hints = get_type_hints(cls)
    required = [each.name for each in fields(cls) if each.default is MISSING and each.default_factory is MISSING]
    return {each.name: hints[each.name] for each in fields(cls)}, required


def _convert(kind: Any, value: Any, name: str) -> Any:
    """Convert a JSON value to a type; lists become tuples where the type is a tuple."""
    if type(value) is kind or kind is Any:
        return value
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):  # X | None
        return None if value is None else _convert(_without_none(kind), value, name)
    if is_dataclass(kind) and isinstance(kind, type):
        return kind.from_json(value) if hasattr(kind, "from_json") else build(kind, value, name)
    if origin in (tuple, list) and isinstance(value, list):
        if all(type(item) is arguments[0] for item in value):  # a table has thousands of such lists
            return origin(value)
        return origin(_convert(arguments[0], item, f"{name}[{i}]") for i, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: _convert(arguments[1], item, f"{name}[{reprlib.repr(key)}]") for key, item in value.items()}
    if origin is Literal and value in arguments:
        return value
    if kind is float and type(value) is int and abs(value) < 2**1023:
        return float(value)
    expected = f"one of {', '.join(map(str, arguments))}" if origin is Literal else JSON_TYPES.get(origin or kind)
    raise InputError(f"{name} must be {expected or 'a list'}; got {reprlib.repr(value)}")


@functools.cache
def _without_none(kind: Any) -> Any:
    (other,) = [each for each in get_args(kind) if each is not NoneType]
    return other
