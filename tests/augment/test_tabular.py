"""Masking and resampling: probabilities, independent draws per sample and cell, and the selection of columns."""

import pandas
import pytest
import torch

import imix
from imix import InputError, Settings
from imix.augment import Masking, Resampling
from imix.data import load
from imix.train.views import build_augment

CELLS = [0, 1, 1, 1, 2, 0]  # a row of six numbers in three cells


def test_masking_sets_a_fraction_p_of_the_cells_to_zero():
    x = torch.ones(400, 50)
    masked = Masking(0.2)(x)
    assert (masked == 0).float().mean().item() == pytest.approx(0.2, abs=0.01)
    assert set(masked.unique().tolist()) == {0.0, 1.0}
    assert Masking(0.0)(x).equal(x)
    assert Masking(1.0)(x).eq(0).all()


def test_masking_draws_independently_for_each_sample_cell_and_view():
    x = torch.ones(64, 64)
    first, second = Masking(0.5)(x), Masking(0.5)(x)
    assert not torch.equal(first, second)
    assert first.unique(dim=0).shape[0] == 64
    assert first.unique(dim=1).shape[1] == 64


@pytest.mark.parametrize("augmentation", [Masking, Resampling])
def test_the_numbers_of_a_cell_change_together_and_cells_independently(augmentation):
    x = torch.arange(1.0, 12001).view(2000, 6)
    changed = augmentation(0.5, CELLS)(x) != x
    assert torch.equal(changed[:, 0], changed[:, 5])
    assert torch.equal(changed[:, 1], changed[:, 2]) and torch.equal(changed[:, 2], changed[:, 3])
    cells = changed[:, [0, 1, 4]].float()
    assert cells.mean(0).sub(0.5).abs().max() < 0.05
    assert torch.corrcoef(cells.T).fill_diagonal_(0).abs().max() < 0.1


@pytest.mark.parametrize("augmentation", [Masking, Resampling])
def test_cells_with_index_minus_1_do_not_change(augmentation):
    x = torch.arange(1.0, 1201).view(200, 6)
    changed = augmentation(0.5, [0, -1, -1, 1, -1, 2])(x) != x
    assert not changed[:, [1, 2, 4]].any()
    assert changed[:, [0, 3, 5]].float().mean().sub(0.5).abs() < 0.1


@pytest.mark.parametrize("p", [0.2, 0.6])
def test_resampling_replaces_a_fraction_p_of_the_cells(p):
    x = torch.arange(40000.0).view(1000, 40)
    assert (Resampling(p)(x) != x).float().mean().item() == pytest.approx(p * 999 / 1000, abs=0.01)


def test_resampling_takes_values_of_the_same_column_from_uniformly_drawn_rows():
    x = torch.arange(50.0)[:, None] + torch.tensor([0.0, 1000.0])
    views = torch.stack([Resampling(1.0)(x) for _ in range(400)])
    for column in (0, 1):
        values, counts = views[..., column].unique(return_counts=True)
        assert torch.equal(values, x[:, column])
        assert (counts / counts.sum()).sub(1 / 50).abs().max() < 0.005


def test_resampling_draws_rows_independently_per_column():
    x = torch.arange(200.0)[:, None].expand(200, 2)
    view = Resampling(1.0)(x)
    assert (view[:, 0] == view[:, 1]).float().mean() < 0.05


def test_a_one_hot_category_is_resampled_as_one_cell():
    x = torch.eye(4).repeat(50, 1)
    assert Resampling(0.5, [0, 0, 0, 0])(x).sum(1).eq(1).all()


def test_every_field_of_a_batch_is_masked():
    row, series = Masking(1.0)((torch.ones(3, 2), torch.ones(3, 4, 5)))
    assert row.eq(0).all() and series.eq(0).all()


@pytest.mark.parametrize("augmentation", [Masking, Resampling])
def test_a_probability_above_1_is_rejected(augmentation):
    with pytest.raises(InputError, match=r"p must be between 0 and 1; got 1\.5"):
        augmentation(1.5)


TABLE = pandas.DataFrame({"a": [0.5, 1.5, None, 3.5] * 5, "b": [1.5, 2.5, 3.5, 4.5] * 5, "c": ["x", "y", "z", "x"] * 5})


@pytest.mark.parametrize(
    ("columns", "masked"),
    [
        ((), {"a", "b", "c"}),
        (("numeric",), {"a", "b"}),
        (("c",), {"c"}),
        (("categorical", "b"), {"b", "c"}),
    ],
)
def test_columns_are_selected_by_name_or_kind(columns, masked):
    data = load(TABLE)
    view = build_augment(Settings(masking=1.0, augment_columns=columns), data)(data.train.inputs + 10)
    names = [data.table.columns[cell].name for cell in data.table.cells]
    assert {name for name, zero in zip(names, view.eq(0).all(0).tolist(), strict=True) if zero} == masked


@pytest.mark.parametrize(("shape", "share"), [((6,), 0.2), ((1, 6), 0.0), ((1, 2, 3), 0.0)])
def test_only_table_rows_are_masked_by_default(shape, share):
    data = load(torch.ones(2000, *shape))
    for masking, augment, expected in ((None, None, share), (None, "none", 0), (0.0, None, 0), (0.5, "none", 0.5)):
        view = build_augment(Settings(masking=masking, augment=augment), data)(data.train.inputs)
        assert view.eq(0).float().mean().item() == pytest.approx(expected, abs=0.02)


def test_masking_and_resampling_can_be_combined():
    data = load(TABLE)
    view = build_augment(Settings(masking=0.3, resampling=0.3), data)(data.train.inputs)
    assert view.shape == data.train.inputs.shape


def test_unknown_columns_are_rejected_before_anything_is_written(tmp_path):
    with pytest.raises(
        InputError,
        match=r"no column or kind 'd'; the columns are 'a' \(numeric\), 'b' \(numeric\), 'c' \(categorical\)",
    ):
        imix.pretrain(TABLE, Settings(masking=0.2, augment_columns=("d",)), out=tmp_path / "run", progress=False)
    with pytest.raises(InputError, match="`augment_columns` names columns of a table"):
        imix.pretrain(torch.randn(8, 3), Settings(masking=0.2, augment_columns=("0",)), progress=False)
    assert not (tmp_path / "run").exists()
