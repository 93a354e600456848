"""Evaluation on whole groups or on the latest samples."""

import numpy as np
import polars
import pytest

import imix
from imix import InputError
from tests.probes.helpers import QUICK


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    """Visits of 20 patients, whose class is that of the patient, so that random splits leak it."""
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(20), 15)
    traits = rng.normal(size=(20, 4))
    rows = {f"c{i}": traits[patient, i] + 0.01 * rng.normal(size=300) for i in range(4)}
    days = np.datetime64("2026-01-01") + rng.permutation(300)
    path = tmp_path_factory.mktemp("data") / "visits.csv"
    columns = {"patient": [f"p{i}" for i in patient], "day": days, **rows, "sick": rng.integers(0, 2, 20)[patient]}
    polars.DataFrame(columns).write_csv(path)
    return path


@pytest.fixture(scope="module")
def run(visits):
    settings = imix.DataSettings(label="sick", columns={"patient": "drop", "day": "drop"})
    return imix.pretrain(visits, QUICK, settings, progress=False)


def test_a_random_split_leaks_what_a_split_by_group_does_not(run):
    random = imix.evaluate(run, protocol="knn")
    by_patient = imix.evaluate(run, protocol="knn", group="patient")
    assert random.accuracy > 0.95 and by_patient.accuracy < 0.9
    assert by_patient.split.by == "group" and by_patient.split.test == 60  # four patients


def test_the_latest_fifth_is_held_out_by_time(run):
    result = imix.evaluate(run, protocol="knn", time="day")
    assert (result.split.by, result.split.test) == ("time", 60)
    assert "held out by time" in str(result)


def test_values_may_be_passed_instead_of_a_column(run, visits):
    frame = polars.read_csv(visits)
    by_name = imix.evaluate(run, protocol="knn", group="patient")
    assert imix.evaluate(run, protocol="knn", group=frame["patient"].to_list()) == by_name
    numbers = imix.evaluate(run, protocol="knn", time=np.arange(300))
    assert numbers.split.test == 60


def test_invalid_groups_and_times_are_rejected(run):
    for options, message in [
        ({"group": "patient", "time": "day"}, "either `group` or `time`"),
        ({"group": "nurse"}, "no column 'nurse'"),
        ({"group": [1, 2]}, r"`group` needs one value for each of the 300 samples; got \(2,\)"),
        ({"group": [None] * 300}, "`group` has missing values"),
        ({"time": "patient"}, "`time` must be numbers or dates such as .*; got 'p0'"),
    ]:
        with pytest.raises(InputError, match=message):
            imix.evaluate(run, protocol="knn", **options)
