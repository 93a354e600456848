"""Dataclasses built from JSON."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from imix import InputError
from imix.typed_json import build


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...]
    text: str | None = None


@dataclass(frozen=True)
class Custom:
    """Has its own conversion."""

    value: int

    @classmethod
    def from_json(cls, value: Any) -> "Custom":
        return cls(len(value))


@dataclass(frozen=True)
class Outer:
    number: float
    mode: Literal["a", "b"] | None
    inner: Inner
    matrix: list[list[int]] = field(default_factory=list)
    anything: dict[str, Any] = field(default_factory=dict)
    custom: Custom | None = None


VALID = {"number": 3, "mode": "a", "inner": {"sizes": [1, 2]}}


def test_values_get_the_types_of_the_fields():
    value = VALID | {"matrix": [[1], [2]], "anything": {"a": [1, {}]}, "custom": "abc"}
    result = build(Outer, json.loads(json.dumps(value)))
    assert result == Outer(3.0, "a", Inner((1, 2)), [[1], [2]], {"a": [1, {}]}, Custom(3))
    assert type(result.number) is float and type(result.inner.sizes) is tuple


def test_none_is_accepted_where_the_type_allows_it():
    assert build(Outer, VALID | {"mode": None}).mode is None
    with pytest.raises(InputError, match="number must be a number; got None"):
        build(Outer, VALID | {"number": None})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": True}, "x.number must be a number; got True"),
        ({"number": 10**400}, "x.number must be a number; got 1000"),
        ({"mode": "c"}, "x.mode must be one of a, b; got 'c'"),
        ({"mode": ["a"]}, r"x.mode must be one of a, b; got \['a'\]"),
        ({"inner": []}, r"x.inner must be an object; got \[\]"),
        ({"inner": {}}, "x.inner.sizes is missing"),
        ({"inner": {"sizes": [1, 2.0]}}, r"x.inner.sizes\[1\] must be an integer; got 2.0"),
        ({"inner": {"sizes": "12"}}, "x.inner.sizes must be a list; got '12'"),
        ({"inner": {"sizes": [], "text": 3}}, "x.inner.text must be a string; got 3"),
        ({"matrix": [[1], ["x"]]}, r"x.matrix\[1\]\[0\] must be an integer; got 'x'"),
        ({"other": 1}, "unknown key 'other' in x"),
        ({"other\n" * 1000: 1}, r"unknown key 'other\\n.{0,40}' in x"),
    ],
)
def test_errors_name_the_value_in_one_short_line(change, message):
    with pytest.raises(InputError, match=f"^{message}") as error:
        build(Outer, VALID | change, "x")
    assert len(str(error.value).splitlines()) == 1 and len(str(error.value)) < 200


@pytest.mark.parametrize("value", [None, 3, "text", [1, 2]])
def test_only_an_object_becomes_a_dataclass(value):
    with pytest.raises(InputError, match="the value must be an object"):
        build(Outer, value)
