"""Grouping runs, naming groups, and which results share a column."""

from dataclasses import replace
from pathlib import Path

import polars
import pytest

import imix
from imix.evaluation import Split
from imix.reports import page
from imix.reports.groups import RunGroup, differences, format_setting, group_runs, method_name, run_description

from .helpers import QUICK, columns_of, make_result, with_config, with_results

pytestmark = pytest.mark.slow


def n_highlighted(groups, baselines=()):
    """The number of highlighted results of groups; baselines do not count."""
    rows = page._results_table(groups, baselines)["rows"]
    return sum(is_best for _, cells in rows[: len(groups)] for _, is_best in cells)


def test_runs_that_differ_only_in_their_seed_form_one_group(runs):
    groups = group_runs([imix.load_run(path) for path in runs])
    assert [(group.name, len(group.runs)) for group in groups] == [("plain-*", 2), ("mixed-*", 2)]


def test_groups_are_called_by_their_run_folders(run):
    def names(*folders: str) -> list[str]:
        """Names of the groups of runs that alternate between two temperatures."""
        runs = [with_config(run, "settings", temperature=0.1 + i % 2, seed=i) for i in range(len(folders))]
        paths = [Path("/x", folder) for folder in folders]
        return [group.name for group in group_runs([replace(r, path=p) for r, p in zip(runs, paths, strict=True)])]

    assert names("moco", "npair") == ["moco", "npair"]
    assert names("moco-0", "npair-0", "moco-1", "npair-1") == ["moco-*", "npair-*"]
    assert names("r0", "r1", "r2", "r3") == ["r0, r2", "r1, r3"], "r* would match both"
    assert names("a/moco", "b/moco") == ["/x/a/moco", "/x/b/moco"]
    assert names("moco/.", "npair/../b") == ["moco", "b"]


def test_runs_without_a_folder_are_called_by_their_method(run):
    assert [group.name for group in group_runs([replace(run, path=None)])] == ["N-pair"]
    other = with_config(run, "settings", temperature=0.7)
    assert [group.name for group in group_runs([other, replace(run, path=None)])] == ["N-pair (1)", "N-pair (2)"]


def test_the_fine_tuned_encoder_has_a_column_with_an_explanation(run, tmp_path):
    tuned = with_results(run, tmp_path / "1", make_result(run.config.data.name, "finetune", 0.8))
    table = page._results_table(group_runs([tuned]), [])
    assert [*table["columns"]] == ["finetune"] and "fine-tuned" in table["meanings"]["finetune"]


def test_the_settings_table_shows_only_the_settings_that_differ(run):
    changed = with_config(run, "settings", temperature=0.7)
    settings = page._settings(group_runs([run, with_config(changed, "data", fingerprint="another")]))
    assert settings["rows"] == {"temperature": ["0.2", "0.7"]}
    assert settings["others"]["fingerprint"] == [run.config.data.fingerprint, "another"]
    assert settings["others"]["batch_size"] == ["16"] and "test" not in settings["others"]


@pytest.mark.parametrize(
    ("section", "values", "cells"),
    [
        ("data_settings", {"standardize": "none"}, ["train", "none"]),
        ("data_settings", {"columns": {"height": "drop", "color": "drop"}}, ["–", "height drop, color drop"]),
        ("data_settings", {"label": None}, ["breed", "–"]),
        ("architecture", {"encoder": "custom"}, ["small", "custom"]),
    ],
)
def test_runs_with_different_data_options_or_encoders_are_different_groups(run, section, values, cells):
    groups = group_runs([run, with_config(run, section, **values)])
    assert page._settings(groups)["rows"] == {next(iter(values)): cells}


def test_an_empty_setting_is_a_dash():
    assert [format_setting(value) for value in (None, {}, [], (), "")] == ["–"] * 5
    assert [format_setting(value) for value in ((60, 80), 0, False)] == ["60, 80", "0", "False"]


def test_runs_on_tables_with_different_values_are_different_groups(run):
    first, *others = run.table.columns
    other = with_config(run, "data", table=replace(run.table, columns=(replace(first, mean=(7.0,)), *others)))
    assert len(group_runs([run, other])) == 2
    assert differences([run_description(run), run_description(other)]) == ["table_values"]
    other = with_config(run, "data", fingerprint="another")
    assert differences([run_description(run), run_description(other)]) == ["fingerprint"]


def test_the_data_folder_and_the_seed_do_not_separate_groups(run):
    moved = with_config(run, "data_settings", data_dir="/elsewhere")
    assert len(group_runs([run, moved, with_config(run, "settings", seed=5)])) == 1


def test_mixing_in_a_supervised_classifier_is_not_called_i_mix(run):
    supervised = with_config(run, "settings", method="supervised", mix="cutmix")
    assert method_name(supervised) == "classifier + CutMix"


def test_files_with_the_same_name_are_distinguished_by_their_folders(run, tmp_path):
    names = ("/x/train.csv", "/y/train.csv")
    runs = [with_results(with_config(run, "data", name=name), tmp_path / name[1], make_result(name)) for name in names]
    groups = group_runs(runs)
    assert columns_of(groups) == [["linear on /x/train.csv"], ["linear on /y/train.csv"]]


def test_results_with_different_labels_are_in_different_columns(table, tmp_path):
    data_settings = imix.DataSettings(label="breed", columns={"color": "drop"})
    run = imix.pretrain(table, replace(QUICK, epochs=1), data_settings, out=tmp_path / "run", progress=False)
    for label in (None, "color"):
        imix.evaluate(run, protocol="knn", label=label)
    (group,) = group_runs([run])
    assert [*group.results] == ["knn", "knn, label color"]
    assert "label color" in str(group.results["knn, label color"][0])


def test_results_on_different_test_files_are_in_different_columns(table, tmp_path):
    data_settings = imix.DataSettings(label="breed", test=str(table))
    run = imix.pretrain(table, replace(QUICK, epochs=1), data_settings, out=tmp_path / "run", progress=False)
    later = tmp_path / "later.csv"
    polars.read_csv(table).head(30).write_csv(later)
    for test in (None, str(later)):
        imix.evaluate(run, protocol="knn", test=test)
    (group,) = group_runs([imix.load_run(tmp_path / "run")])
    assert [*group.results] == ["knn", "knn, tested on later.csv"]
    assert [result.split.test for results in group.results.values() for result in results] == [90, 30]


def test_results_on_different_data_are_in_different_columns(run, tmp_path):
    first = with_results(with_config(run, "data", name="/x/a.csv"), tmp_path / "1", make_result("/x/a.csv", value=0.9))
    second = with_results(
        with_config(run, "data", name="/x/b.csv"),
        tmp_path / "2",
        make_result("/x/b.csv"),
        make_result("/x/a.csv", value=0.8),
    )
    assert columns_of(group_runs([first])) == [["linear"]]
    assert columns_of(group_runs([second])) == [["linear", "linear on a.csv"]]
    groups = group_runs([first, second])
    assert columns_of(groups) == [["linear on a.csv"], ["linear on b.csv", "linear on a.csv"]]
    assert n_highlighted(groups) == 1


def test_only_a_result_that_is_better_than_all_others_is_highlighted():
    low, high = ([make_result("a.csv", value=value)] for value in (0.5, 0.6))
    groups = [RunGroup(name, [], {"linear": low}) for name in ("N-pair", "MoCo")]
    assert n_highlighted(groups) == 0
    assert n_highlighted([*groups, RunGroup("BYOL", [], {"linear": high})]) == 1
    assert n_highlighted(groups, [RunGroup("inputs", [], {"linear": high})]) == 0
    with_inputs = [replace(group, results={"linear": high, "linear (inputs)": low}) for group in groups]
    better_inputs = {"linear": low, "linear (inputs)": [make_result("a.csv", value=0.7)]}
    table = page._results_table([*with_inputs, RunGroup("BYOL", [], better_inputs)], [])
    assert table["rows"][0] == ("N-pair", [("60.0", False), ("50.0", False)])
    assert table["rows"][2] == ("BYOL", [("50.0", False), ("70.0", True)])


def test_a_run_folder_may_be_called_like_a_baseline():
    group, row = (RunGroup("inputs", [], {"linear": [make_result("a.csv", value=value)]}) for value in (0.5, 0.6))
    cells = [("50.0", False)], [("60.0", False)]
    assert page._results_table([group], [row])["rows"] == [("inputs", cells[0]), ("inputs", cells[1])]


def test_results_with_different_hyperparameters_are_in_different_columns(run, tmp_path):
    name = run.config.data.name
    results = [make_result(name, "knn", k=1, temperature=0.07), make_result(name, "fed")]
    small_k = with_results(run, tmp_path / "1", *results)
    other = with_config(run, "settings", temperature=0.7)
    large_k = with_results(
        other, tmp_path / "2", make_result(name, "knn", 0.6, split=Split(60, 18), k=90, temperature=0.07)
    )
    groups = group_runs([small_k, large_k])
    assert columns_of(groups) == [["knn, k 1", "fed"], ["knn, k 90"]]
    assert n_highlighted(groups) == 0
    evaluation_settings = "\n".join(page._evaluation_settings(groups))
    assert "knn, k 1: k 1," in evaluation_settings and "knn, k 90: k 90," in evaluation_settings
    (group,) = group_runs([small_k, replace(large_k, config=run.config)])
    assert (group.formatted("knn, k 1"), group.formatted("knn, k 90")) == ("50.0", "60.0")
    assert columns_of(group_runs([large_k])) == [["knn"]]


def test_seeds_and_sample_counts_do_not_separate_columns(run, tmp_path):
    name = run.config.data.name
    used = {"lrs": (1, 3), "momentum": 0, "milestones": ()}
    first_result = make_result(name, split=Split(72, 18, held_out=True, seed=0), **used, seed=0)
    first = with_results(run, tmp_path / "1", first_result)
    second = with_results(run, tmp_path / "2", make_result(name, split=Split(70, 20, unlabeled=2), **used, seed=1))
    (group,) = group_runs([first, second])
    assert [*group.results] == ["linear"] and len(group.results["linear"]) == 2
    third = with_results(run, tmp_path / "3", make_result(name, lrs=(30,), momentum=0.9, milestones=(60, 80)))
    (group,) = group_runs([first, third])
    assert [*group.results] == [
        "linear, lrs 1, 3, momentum 0, milestones –",
        "linear, lrs 30, momentum 0.9, milestones 60, 80",
    ]


def test_results_for_one_label_share_a_column_even_if_one_run_was_trained_without_it(table, tmp_path):
    runs = []
    for label, dropped in (("breed", ("color",)), (None, ("breed", "color"))):
        data_settings = imix.DataSettings(label=label, columns=dict.fromkeys(dropped, "drop"))
        run = imix.pretrain(table, replace(QUICK, epochs=1), data_settings, out=tmp_path / str(label), progress=False)
        imix.evaluate(run, protocol="knn", label=None if label else "breed")
        imix.evaluate(run, protocol="fed")
        runs.append(run)
    imix.evaluate(runs[1], protocol="knn", label="color")
    groups = group_runs(runs)
    assert columns_of(groups) == [["knn, label breed", "fed"], ["knn, label breed", "fed", "knn, label color"]]
    assert page._settings(groups)["rows"]["label"] == ["breed", "–"]


def test_encoders_of_different_epochs_of_a_run_are_not_one_group(run, tmp_path):
    last = replace(run, path=tmp_path / "r")
    best = replace(last, encoder_file="best_encoder.safetensors", progress="epoch 2 of 3, step 6 of 9")
    assert [(group.name, len(group.runs)) for group in group_runs([last, best])] == [
        ("r", 1),
        ("r (best_encoder, epoch 2 of 3)", 1),
    ]
    unfinished = replace(last, path=tmp_path / "s", progress="epoch 1 of 3, step 3 of 9")
    assert [group.name for group in group_runs([last, unfinished])] == ["r", "s (epoch 1 of 3)"]
    settings = page._settings(group_runs([last, best]))
    assert settings["rows"]["encoder_file"] == ["encoder.safetensors", "best_encoder.safetensors"]
