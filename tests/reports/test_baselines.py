"""Baseline rows of the results table."""

import pytest

from imix.reports import page
from imix.reports.baselines import split_baselines
from imix.reports.groups import RunGroup, group_runs

from .helpers import columns_of, make_result, with_config, with_results

pytestmark = pytest.mark.slow


def test_inputs_are_compared_with_features_evaluated_with_the_same_hyperparameters(run, tmp_path):
    name = run.config.data.name
    features = [make_result(name, "knn", 0.7, k=20), make_result(name, "knn", 0.8, k=1)]
    evaluated = with_results(run, tmp_path / "1", *features, make_result(name, "knn", 0.6, k=20, inputs=True))
    (group,), (row,) = split_baselines(group_runs([evaluated]))
    assert [*group.results] == ["knn, k 20", "knn, k 1"]
    assert [*row.results] == ["knn, k 20"] and row.formatted("knn, k 20") == "60.0"


def test_inputs_are_a_separate_row_only_if_all_groups_agree(run, tmp_path):
    name = run.config.data.name
    second_run = with_config(run, "settings", temperature=0.7)

    def make_groups(folder: str, *input_values: float | None) -> list[RunGroup]:
        runs = []
        for i, (base, value) in enumerate(zip((run, second_run), input_values, strict=True)):
            inputs = [] if value is None else [make_result(name, value=value, inputs=True)]
            runs.append(with_results(base, tmp_path / folder / str(i), make_result(name, value=0.7), *inputs))
        return group_runs(runs)

    groups, (row,) = split_baselines(make_groups("equal", 0.6, 0.6))
    assert columns_of(groups) == [["linear"], ["linear"]] and groups[0].formatted("linear") == "70.0"
    assert row.name == "inputs" and row.formatted("linear") == "60.0"
    for groups in (make_groups("different", 0.6, 0.5), make_groups("missing", 0.6, None)):
        assert split_baselines(groups) == (groups, [])
        assert groups[0].formatted("linear") == "70.0" and groups[0].formatted("linear (inputs)") == "60.0"


def test_the_most_frequent_class_is_a_row_only_if_all_results_agree(run, tmp_path):
    name = run.config.data.name
    majorities = {"linear": (0.4, 0.4 + 1e-12), "knn": (0.4, 0.41), "pinv": (None, None), "fed": (None, None)}
    runs = []
    for i, base in enumerate((run, with_config(run, "settings", temperature=0.7))):
        results = [make_result(name, protocol, majority=values[i]) for protocol, values in majorities.items()]
        runs.append(with_results(base, tmp_path / str(i), *results))
    path = page.write_report(tmp_path / "r.html", "two", group_runs(runs), "", "", samples=10)
    assert "<th>most frequent class</th><td>40.0</td><td></td><td></td><td></td></tr>" in path.read_text()
