"""Augmentation: rates as asked, one draw per sample and cell, columns touched as a whole, values from their column."""

import pandas
import pytest
import torch

import imix
from imix import InputError, Settings
from imix.augment import Masking, Resampling
from imix.data import load
from imix.train.views import make_augment

CELLS = [0, 1, 1, 1, 2, 0]  # six numbers of a row, three columns


def test_masking_sets_the_asked_share_of_cells_to_zero_and_leaves_the_rest():
    x = torch.ones(400, 50)
    masked = Masking(0.2)(x)
    assert (masked == 0).float().mean().item() == pytest.approx(0.2, abs=0.01)
    assert set(masked.unique().tolist()) == {0.0, 1.0}
    assert Masking(0.0)(x).equal(x)
    assert Masking(1.0)(x).eq(0).all()


def test_masking_draws_anew_for_each_sample_cell_and_view():
    x = torch.ones(64, 64)
    one, other = Masking(0.5)(x), Masking(0.5)(x)
    assert not torch.equal(one, other)
    assert one.unique(dim=0).shape[0] == 64
    assert one.unique(dim=1).shape[1] == 64


@pytest.mark.parametrize("kind", [Masking, Resampling])
def test_the_numbers_of_a_cell_are_touched_together_and_cells_apart(kind):
    x = torch.arange(1.0, 12001).view(2000, 6)
    touched = kind(0.5, CELLS)(x) != x
    assert torch.equal(touched[:, 0], touched[:, 5])
    assert torch.equal(touched[:, 1], touched[:, 2]) and torch.equal(touched[:, 2], touched[:, 3])
    cells = touched[:, [0, 1, 4]].float()
    assert cells.mean(0).sub(0.5).abs().max() < 0.05
    assert torch.corrcoef(cells.T).fill_diagonal_(0).abs().max() < 0.1


@pytest.mark.parametrize("kind", [Masking, Resampling])
def test_cells_that_are_not_chosen_are_left_alone(kind):
    x = torch.arange(1.0, 1201).view(200, 6)
    touched = kind(0.5, [0, -1, -1, 1, -1, 2])(x) != x
    assert not touched[:, [1, 2, 4]].any()
    assert touched[:, [0, 3, 5]].float().mean().sub(0.5).abs() < 0.1


@pytest.mark.parametrize("p", [0.2, 0.6])
def test_resampling_replaces_the_asked_share_of_cells(p):
    x = torch.arange(40000.0).view(1000, 40)
    assert (Resampling(p)(x) != x).float().mean().item() == pytest.approx(p * 999 / 1000, abs=0.01)


def test_resampling_takes_values_of_the_same_column_from_rows_drawn_alike():
    x = torch.arange(50.0)[:, None] + torch.tensor([0.0, 1000.0])
    views = torch.stack([Resampling(1.0)(x) for _ in range(400)])
    for column in (0, 1):
        values, counts = views[..., column].unique(return_counts=True)
        assert torch.equal(values, x[:, column])
        assert (counts / counts.sum()).sub(1 / 50).abs().max() < 0.005


def test_resampling_draws_for_each_column_apart():
    x = torch.arange(200.0)[:, None].expand(200, 2)
    view = Resampling(1.0)(x)
    assert (view[:, 0] == view[:, 1]).float().mean() < 0.05


def test_a_category_is_resampled_as_a_whole():
    x = torch.eye(4).repeat(50, 1)
    assert Resampling(0.5, [0, 0, 0, 0])(x).sum(1).eq(1).all()


def test_several_fields_are_touched_each():
    one, other = Masking(1.0)((torch.ones(3, 2), torch.ones(3, 4, 5)))
    assert one.eq(0).all() and other.eq(0).all()


@pytest.mark.parametrize("kind", [Masking, Resampling])
def test_a_probability_beyond_one_is_refused(kind):
    with pytest.raises(InputError, match=r"must lie within 0 and 1; got 1\.5"):
        kind(1.5)


TABLE = pandas.DataFrame({"a": [0.5, 1.5, None, 3.5] * 5, "b": [1.5, 2.5, 3.5, 4.5] * 5, "c": ["x", "y", "z", "x"] * 5})


@pytest.mark.parametrize(
    ("columns", "touched"),
    [
        ((), {"a", "b", "c"}),
        (("numeric",), {"a", "b"}),
        (("c",), {"c"}),
        (("categorical", "b"), {"b", "c"}),
    ],
)
def test_columns_are_chosen_by_name_or_kind(columns, touched):
    data = load(TABLE)
    view = make_augment(Settings(masking=1.0, augment_columns=columns), data)(data.train.inputs + 10)
    names = [data.table.columns[cell].name for cell in data.table.cells]
    assert {name for name, zero in zip(names, view.eq(0).all(0).tolist(), strict=True) if zero} == touched


@pytest.mark.parametrize(("shape", "share"), [((6,), 0.2), ((1, 6), 0.0), ((1, 2, 3), 0.0)])
def test_rows_are_masked_unless_told_otherwise_and_nothing_else_is(shape, share):
    data = load(torch.ones(2000, *shape))
    for masking, augment, expected in ((None, None, share), (None, "none", 0), (0.0, None, 0), (0.5, "none", 0.5)):
        view = make_augment(Settings(masking=masking, augment=augment), data)(data.train.inputs)
        assert view.eq(0).float().mean().item() == pytest.approx(expected, abs=0.02)


def test_masking_and_resampling_go_together():
    data = load(TABLE)
    view = make_augment(Settings(masking=0.3, resampling=0.3), data)(data.train.inputs)
    assert view.shape == data.train.inputs.shape


def test_columns_that_are_not_there_are_named_before_anything_is_written(tmp_path):
    with pytest.raises(
        InputError, match=r"no column or kind 'd'; there are 'a' \(numeric\), 'b' \(numeric\), 'c' \(categorical\)"
    ):
        imix.pretrain(TABLE, Settings(masking=0.2, augment_columns=("d",)), out=tmp_path / "run", progress=False)
    with pytest.raises(InputError, match="augment_columns names columns of a table"):
        imix.pretrain(torch.randn(8, 3), Settings(masking=0.2, augment_columns=("0",)), progress=False)
    assert not (tmp_path / "run").exists()
