"""Batches: one tensor, or nested tuples, lists and dicts of tensors."""

import pytest
import torch
from torch import Tensor

from imix.batch import checked_size, concatenate, fields, map_fields, size
from imix.errors import InputError


def nested(offset: int = 0) -> dict[str, object]:
    def rows(start: int, *shape: int) -> Tensor:
        return torch.arange(start, start + torch.Size(shape).numel()).view(shape) + offset

    return {"image": rows(0, 3, 2, 2), "rest": [rows(100, 3), (rows(200, 3, 1), rows(300, 3, 4))]}


def test_tensor_is_a_batch_with_one_field() -> None:
    x = torch.randn(3, 2)
    assert fields(x) == [x]
    assert size(x) == 3
    assert torch.equal(map_fields(lambda field: field + 1, x), x + 1)


def test_fields_are_listed_in_order() -> None:
    assert [field.flatten()[0].item() for field in fields(nested())] == [0, 100, 200, 300]


def test_map_fields_keeps_the_structure() -> None:
    mapped = map_fields(lambda field: -field, nested())
    assert list(mapped) == ["image", "rest"]
    assert type(mapped) is dict
    assert type(mapped["rest"]) is list
    assert type(mapped["rest"][1]) is tuple
    for before, after in zip(fields(nested()), fields(mapped), strict=True):
        assert torch.equal(after, -before)


def test_map_fields_combines_batches_with_the_same_structure() -> None:
    summed = map_fields(torch.add, nested(), nested(offset=7))
    for x, y in zip(fields(nested()), fields(summed), strict=True):
        assert torch.equal(y, 2 * x + 7)


def test_map_fields_rejects_batches_with_different_structures() -> None:
    with pytest.raises(ValueError, match="shorter"):
        map_fields(torch.add, (torch.ones(2), torch.ones(2)), (torch.ones(2),))


def test_concatenate_joins_every_field() -> None:
    joined = concatenate([nested(), nested(offset=1), nested(offset=2)])
    assert size(joined) == 9
    for x, y in zip(fields(nested()), fields(joined), strict=True):
        assert torch.equal(y, torch.cat([x, x + 1, x + 2]))


def test_checked_size_rejects_fields_with_different_numbers_of_samples() -> None:
    with pytest.raises(InputError, match=r"same number of samples; got \[3, 2\]"):
        checked_size({"a": torch.zeros(3, 1), "b": torch.zeros(2, 5)})


def test_checked_size_rejects_a_batch_without_fields() -> None:
    with pytest.raises(InputError, match="same number of samples"):
        checked_size([])


@pytest.mark.parametrize("value", ["text", 3.0, None, {1, 2}])
def test_checked_size_rejects_values_that_are_not_tensors(value: object) -> None:
    with pytest.raises(InputError, match=f"a tensor, or a tuple, list or dict of tensors; got {type(value).__name__}"):
        checked_size({"field": value})
