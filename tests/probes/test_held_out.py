"""The stratified split, and test samples for data that has none."""

import pytest
import torch

import imix
from imix import InputError
from imix.data import Data, TensorSource
from imix.probes.held_out import stratified_split, with_test_split
from imix.run.result import Split
from tests.probes.helpers import QUICK


def test_a_fraction_of_each_class_is_held_out_of_data_without_test_samples():
    labels = torch.arange(48) % 3
    run = imix.pretrain(torch.randn(48, 4), QUICK, labels=labels, progress=False)
    data, split = with_test_split(imix.data.load(torch.randn(48, 4), labels=labels), seed=0)
    assert data.test.labels.bincount().tolist() == [3, 3, 3]
    assert split == Split(train=39, test=9, held_out=True, seed=0)
    assert imix.evaluate(run, torch.randn(48, 4), "knn", labels=labels).metrics["majority_accuracy"] > 0


def test_kept_and_held_out_rows_partition_the_data_and_every_class():
    labels = torch.arange(300) % 3
    kept, held_out = stratified_split(labels, 0.1, 0)
    assert sorted(kept.tolist() + held_out.tolist()) == list(range(300))
    assert labels[held_out].bincount().tolist() == [10, 10, 10]


@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.4, 0.75])
def test_the_requested_fraction_is_held_out(fraction):
    labels = torch.arange(300) % 3
    _, held_out = stratified_split(labels, fraction, 0)
    assert labels[held_out].bincount().tolist() == pytest.approx([100 * fraction] * 3, abs=1)
    assert len(held_out) == round(300 * fraction)


@pytest.mark.parametrize("n", [1, 9, 10, 1297, 100_003])
def test_a_tenth_is_every_tenth_row_of_the_shuffled_rows_sorted_by_class(n):
    labels = torch.arange(n) % 7
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    tenth = order[labels[order].argsort(stable=True)][9::10].sort().values
    assert torch.equal(stratified_split(labels, 0.1, 0)[1], tenth if n >= 10 else order[:1])


def numbered(n=100, classes=2, unlabeled=0):
    labels = torch.arange(n) % classes
    labels[:unlabeled] = -1
    return Data("numbers", TensorSource(torch.arange(n)[:, None].float(), labels))


def test_a_split_by_group_keeps_whole_groups_together():
    group = torch.arange(100) // 4  # 25 groups of 4 rows
    data, split = with_test_split(numbered(unlabeled=10), 0, group=group)
    in_train, in_test = (set(group[part.inputs[:, 0].long()].tolist()) for part in (data.train, data.test))
    assert not in_train & in_test
    assert 10 <= split.test <= 20 and split.by == "group" and split.unlabeled == 10
    assert "held out by group with seed 0" in str(split)
    other, _ = with_test_split(numbered(unlabeled=10), 1, group=group)
    assert not torch.equal(other.test.inputs, data.test.inputs)


def test_a_split_by_time_holds_out_the_latest_samples():
    time = -torch.arange(100.0)  # the first rows are the latest
    data, split = with_test_split(numbered(), 0, time=time)
    assert data.test.inputs[:, 0].tolist() == list(range(20))
    assert split.by == "time" and str(split) == "train 80, test 20 held out by time"


def test_samples_of_the_same_time_are_not_separated():
    time = torch.arange(100) // 30  # 0, 1, 2, 3: the last ten rows are the latest
    data, _ = with_test_split(numbered(), 0, time=time)
    assert data.test.inputs[:, 0].tolist() == list(range(90, 100))


def test_splits_that_are_impossible_are_rejected():
    with pytest.raises(InputError, match="in the same group"):
        with_test_split(numbered(), 0, group=torch.zeros(100))
    with pytest.raises(InputError, match="all have the same time"):
        with_test_split(numbered(), 0, time=torch.zeros(100))
    both = Data("d", numbered().train, numbered().train)
    with pytest.raises(InputError, match="cannot be split by `group` or `time`"):
        with_test_split(both, 0, group=torch.arange(100))
