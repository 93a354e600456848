"""Validation of settings."""

import numpy as np
import pytest

from imix import DataSettings, InputError, Settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fold": "no"}, "`fold` must be True or False; got 'no'"),
        ({"compile": 3}, "`compile` must be True or False"),
        ({"milestones": 80}, "`milestones` must be a list; got 80"),
        ({"encoder": 18}, "`encoder` must be a name .*; got 18"),
        ({"weight_decay": float("nan")}, "`weight_decay` must be a number"),
    ],
)
def test_settings_of_the_wrong_type_are_rejected(changes, message):
    with pytest.raises(InputError, match=message):
        Settings(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "dino"}, "unknown `method` 'dino'; choose from npair, simclr"),
        ({"mix": "fmix"}, "unknown `mix` 'fmix'"),
        ({"head": "fancy"}, "unknown `head` 'fancy'"),
        ({"temperature": 0}, "`temperature` must be above 0; got 0"),
        ({"epochs": 0}, "`epochs` must be above 0"),
        ({"masking": 1.5}, "`masking` must be between 0 and 1; got 1.5"),
        ({"lr": -1}, "`lr` must be above 0"),
        ({"seed": -1}, "`seed` must be at least 0"),
        ({"epochs": 1.5}, "`epochs` must be an integer or 'auto'; got 1.5"),
        ({"epochs": "3"}, "`epochs` must be an integer or 'auto'; got '3'"),
        ({"lr": "fast"}, "`lr` must be a number; got 'fast'"),
        ({"epochs": 5, "warmup": 5}, "`warmup` must be at least 0 and less than `epochs=5`; got 5"),
    ],
)
def test_invalid_settings_are_rejected_by_name(changes, message):
    with pytest.raises(InputError, match=message):
        Settings(**changes)


@pytest.mark.parametrize("columns", [["id"], "id", 7])
def test_columns_must_be_a_dict(columns):
    with pytest.raises(InputError, match=r"`columns` must be a dict .*; got "):
        DataSettings(columns=columns)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"milestones": "60"}, "`milestones` must be a list; got '60'"),
        ({"milestones": ("a",)}, "each value of `milestones` must be an integer; got 'a'"),
        ({"milestones": [60, 80.5]}, "each value of `milestones` must be an integer; got 80.5"),
        ({"milestones": (True,)}, "each value of `milestones` must be an integer; got True"),
        ({"augment_columns": (3,)}, "each value of `augment_columns` must be a name; got 3"),
    ],
)
def test_each_value_of_a_list_has_the_right_type(settings, message):
    with pytest.raises(InputError, match=message):
        Settings(schedule="step", **settings)


def test_lists_are_converted_to_tuples_and_a_single_name_is_accepted():
    settings = Settings(milestones=[np.int64(60), 80], augment_columns="numeric")
    assert settings.milestones == (60, 80) and type(settings.milestones[0]) is int
    assert settings.augment_columns == ("numeric",)
