"""The number of groups: the highest silhouette of the stable numbers."""

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score

from imix import InputError
from imix.explore import stability
from imix.explore.stability import Choice, choose_k, fit_kmeans


def test_scores_are_the_silhouette_and_the_agreement_of_halves(points):
    choice = choose_k(torch.from_numpy(points), [2, 3, 6], seed=0)
    scores = {k: (silhouette, agreement) for k, silhouette, agreement in choice.scores}
    assert choice.k == 3 and list(scores) == [2, 3, 6]
    assert scores[3][0] == pytest.approx(silhouette_score(points, np.repeat([0, 1, 2], [30, 20, 10])))
    assert scores[3][1] == 1 > scores[6][1]


def test_an_unstable_number_is_not_chosen_for_its_silhouette(monkeypatch):
    monkeypatch.setattr(stability, "_score", lambda x, k, seed: {2: (0.2, 0.9), 3: (0.3, 0.85), 4: (0.9, 0.1)}[k])
    choice = choose_k(torch.randn(20, 3), [2, 3, 4], seed=0)
    assert choice.k == 3
    assert choice.frame().filter("chosen").row(0) == (3, 0.3, 0.85, True)
    assert "chose 3: highest silhouette (0.30) of the stable numbers (stability 0.85)" in choice.lines()[0]


def test_if_no_number_is_stable_the_most_stable_one_is_chosen_and_the_summary_says_so(monkeypatch):
    monkeypatch.setattr(stability, "_score", lambda x, k, seed: {2: (0.2, 0.5), 3: (0.9, 0.1)}[k])
    choice = choose_k(torch.randn(20, 3), [2, 3], seed=0)
    assert choice.k == 2 and "highest stability (0.50, below 0.8;" in choice.lines()[0]


def test_a_number_that_is_given_is_not_scored():
    assert choose_k(torch.randn(20, 3), 4, seed=0) == Choice(4)
    with pytest.raises(InputError, match="`k` must be between 1 and 20"):
        choose_k(torch.randn(20, 3), [3, 21], seed=0)


def test_many_samples_join_the_nearest_center_of_a_fit_to_some(points, monkeypatch):
    monkeypatch.setattr(stability, "MAX_FIT", 40)
    group = fit_kmeans(torch.from_numpy(points), 3, seed=0)
    assert [len(set(group[part])) for part in (slice(30), slice(30, 50), slice(50, 60))] == [1, 1, 1]
    assert len(set(group)) == 3
