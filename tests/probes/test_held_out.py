"""The stratified split, and test samples for data that has none."""

import pytest
import torch

import imix
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
