"""Pretraining, evaluating and embedding on tables."""

import json

import numpy as np
import pandas
import pyarrow as pa
import pytest
import torch

import imix
from imix import DataSettings, InputError, Settings
from imix.data.tables.frame import as_frame
from imix.run.result import Split
from tests.data.tables.helpers import QUICK, people


def test_an_input_column_cannot_be_the_label():
    frame = pandas.DataFrame(people())
    run = imix.pretrain(frame, QUICK, progress=False)
    with pytest.raises(
        InputError, match=r"column 'target' was an input of this run.*train with `columns=.'target': 'drop'.`"
    ):
        imix.evaluate(run, frame, label="target")


def test_several_label_columns_can_be_dropped_in_training_and_evaluated_one_by_one():
    frame = pandas.DataFrame(people())
    run = imix.pretrain(frame, QUICK, DataSettings(columns={"target": "drop", "smoker": "drop"}), progress=False)
    assert not {"target", "smoker"} & run.table.kinds.keys()
    for label in ("target", "smoker"):
        assert imix.evaluate(run, frame, "knn", label=label).split.train == 96


def test_a_self_supervised_method_does_not_use_the_label():
    frame = pandas.DataFrame(people())
    shuffled = frame.assign(target=frame["target"].sample(frac=1, random_state=0).to_numpy())
    runs = [imix.pretrain(f, QUICK, DataSettings(label="target"), progress=False) for f in (frame, shuffled)]
    for a, b in zip(*(run.encoder.state_dict().values() for run in runs), strict=True):
        assert torch.equal(a, b)
    assert "target" not in [column.name for column in runs[0].table.columns]


def test_rows_without_a_label_are_used_for_training_but_not_for_evaluation():
    frame = pandas.DataFrame(people())
    frame.loc[::2, "target"] = None
    run = imix.pretrain(frame, QUICK, DataSettings(label="target"), progress=False)
    assert run.config.data.samples == 120
    result = imix.evaluate(run, frame, "knn")
    assert result.split == Split(train=48, test=12, held_out=True, seed=0, unlabeled=60)
    with pytest.raises(InputError, match="60 samples have none"):
        imix.pretrain(frame, Settings(method="supclr", encoder="mlp:8-8"), DataSettings(label="target"), progress=False)


def test_embed_accepts_new_files_with_reordered_columns_and_without_label(people_csv, tmp_path):
    run = imix.pretrain(people_csv, QUICK, DataSettings(label="target"), out=tmp_path / "run", progress=False)
    new = pandas.DataFrame(people(40, seed=2)).drop(columns=["target", "name", "row", "empty"])
    new[new.columns[::-1]].to_csv(tmp_path / "new.csv", index=False)
    features = imix.embed(tmp_path / "run", tmp_path / "new.csv")
    with torch.no_grad():
        expected = run.encoder(torch.from_numpy(run.table.encode(as_frame(new)))).numpy()
    np.testing.assert_allclose(features, expected, rtol=1e-5, atol=1e-6)
    new.rename(columns={"age": "Age"}).to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(InputError, match="missing: 'age'; not seen in training: 'Age'"):
        imix.embed(tmp_path / "run", tmp_path / "new.csv")
    new.assign(extra=1).to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(InputError, match="does not have the columns of the run; not seen in training: 'extra'"):
        imix.embed(tmp_path / "run", tmp_path / "new.csv")
    assert np.array_equal(imix.embed(tmp_path / "run", tmp_path / "new.csv", columns={"extra": "drop"}), features)


def test_a_missing_column_is_an_error_and_an_empty_column_is_not(people_csv, tmp_path):
    run = imix.pretrain(people_csv, QUICK, DataSettings(label="target"), progress=False)
    for name in ("age", "smoker", "joined", "city", "rooms"):
        new = pandas.DataFrame(people(9)).drop(columns=name)
        with pytest.raises(InputError, match=f"missing: '{name}'"):
            imix.embed(run, new)
        new.assign(**{name: None}).to_csv(tmp_path / "new.csv", index=False)
        assert np.isfinite(imix.embed(run, tmp_path / "new.csv")).all()
        assert np.array_equal(imix.embed(run, tmp_path / "new.csv"), imix.embed(run, new.assign(**{name: None})))


def test_a_run_on_arrays_rejects_tables_and_vice_versa(people_csv):
    run = imix.pretrain(np.random.default_rng(0).normal(size=(40, 3)), QUICK, progress=False)
    with pytest.raises(InputError, match="the run was trained on arrays"):
        imix.embed(run, pa.table({"a": [0.5, 1.5], "b": [0.5, 2.5], "c": [0.5, 3.5]}))
    run = imix.pretrain(people_csv, QUICK, progress=False)
    with pytest.raises(InputError, match=r"missing: 'age'.*; not seen in training: '0'"):
        imix.embed(run, np.ones((4, 3)))


def test_a_run_is_not_resumed_on_another_table(people_csv, tmp_path):
    imix.pretrain(people_csv, QUICK, out=tmp_path / "run", progress=False)
    pandas.DataFrame(people(seed=9)).to_csv(people_csv, index=False)
    with pytest.raises(InputError, match="its table had different columns or values"):
        imix.pretrain(people_csv, QUICK, out=tmp_path / "run", resume=True, progress=False)


def test_pretrain_prints_the_kinds_of_the_columns(people_csv, capsys):
    imix.pretrain(people_csv, QUICK)
    assert "2 numeric ('age', 'income'), 1 boolean ('smoker'), 3 categorical" in capsys.readouterr().err


def test_new_rows_may_have_an_empty_label_column_or_separate_labels():
    frame = pandas.DataFrame(people())
    run = imix.pretrain(frame, QUICK, DataSettings(label="target"), progress=False)
    assert imix.embed(run, frame.assign(target=None)).shape == (120, 2)
    result = imix.evaluate(run, frame.drop(columns="target"), "knn", labels=frame["target"])
    assert result.split.train == 96
    with pytest.raises(InputError, match="has no column 'typo'"):
        imix.evaluate(run, frame, "knn", label="typo")
    with pytest.raises(InputError, match="column 'target' is empty"):
        imix.evaluate(run, frame.assign(target=None), "knn", label="target")


def test_a_label_column_with_numbers_in_new_rows_may_be_kept_or_dropped():
    frame = pandas.DataFrame(people())
    run = imix.pretrain(frame, QUICK, DataSettings(label="target"), progress=False)
    new = frame.assign(target=np.arange(120) + 0.5)
    assert imix.embed(run, new).shape == (120, 2)
    assert imix.embed(run, new, columns={"target": "drop"}).shape == (120, 2)


def test_columns_that_the_run_has_not_seen_can_be_dropped(people_csv, tmp_path):
    imix.pretrain(
        people_csv, QUICK, DataSettings(label="target", columns={"name": "drop"}), out=tmp_path / "run", progress=False
    )
    pandas.DataFrame(people()).drop(columns="name").assign(extra=1).to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(InputError, match="not seen in training: 'extra'"):
        imix.evaluate(tmp_path / "run", tmp_path / "new.csv", "knn")
    options = {"columns": {"extra": "drop"}, "test": str(tmp_path / "new.csv")}
    assert imix.evaluate(tmp_path / "run", tmp_path / "new.csv", "knn", **options).split.test == 120
    with pytest.raises(InputError, match="column 'age' is numeric in this run and cannot be changed to drop"):
        imix.embed(tmp_path / "run", people_csv, columns={"age": "drop"})


def test_data_options_that_a_config_lacks_get_their_defaults(tmp_path):
    run = imix.pretrain(np.random.default_rng(0).normal(size=(40, 3)), QUICK, out=tmp_path / "run", progress=False)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["data"]["settings"] = {}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert imix.load_run(tmp_path / "run").data_settings == DataSettings()
    assert imix.embed(tmp_path / "run", np.ones((2, 3))).shape == (2, run.encoder[-1].width)


def test_a_result_states_the_number_of_unlabeled_rows(tmp_path):
    path = tmp_path / "some.csv"
    rows = ["a", "b", "", "a", "b"] * 10
    path.write_text("y,v,w\n" + "".join(f"{y},{n * 0.37 % 1},{n * 0.73 % 1}\n" for n, y in enumerate(rows)))
    run = imix.pretrain(path, QUICK, DataSettings(label="y"), progress=False)
    result = imix.evaluate(run, protocol="knn", hyperparameters=imix.evaluation.KNN(k=3))
    assert (result.split.unlabeled, result.split.train) == (10, 32)
    assert "10 without label ignored" in str(result)


def test_missing_values_are_an_error_if_training_had_none():
    x = np.random.default_rng(0).normal(size=(40, 3))
    run = imix.pretrain(x, QUICK, progress=False)
    with pytest.raises(InputError, match="the run was trained on arrays"):
        imix.embed(run, np.where(x > 1, np.nan, x))
