"""Flags that several commands share, and their groups in the help."""

from dataclasses import fields

import pytest

from imix.cli.app import build_app
from imix.cli.flags import DataFlags, TrainingFlags
from imix.settings import DataSettings, Settings


def parse(*words):
    _, arguments, _ = build_app().parse_args(["pretrain", "data.csv", "--out", "run", *words])
    settings = Settings(**vars(arguments.kwargs.get("settings", TrainingFlags())))
    return settings, DataSettings(**vars(arguments.kwargs.get("data_settings", DataFlags())))


# The first and the last option of each group; the settings are in the same order.
GROUPS = {
    "Method and mixing": ("method", "symmetric"),
    "Augmentation": ("augment", "augment_columns"),
    "Encoder": ("encoder", "dim"),
    "Optimization": ("epochs", "patience"),
    "Runtime and logging": ("seed", "wandb"),
    "Data": ("label", "data_dir"),
}


@pytest.mark.parametrize("command", ["pretrain", "bench"])
def test_the_help_has_every_setting_in_its_group_and_with_its_description(run_cli, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "120")
    _, out, _ = run_cli(command, "--help")
    panels = {panel.split(" ─")[0]: panel for panel in out.split("╭─ ")[1:]}
    titles = ["Run", "Method and mixing", "Augmentation", "Encoder", "Optimization", "Data", "Runtime and logging"]
    assert list(panels) == ["Arguments", *titles]
    names = [field.name for cls in (Settings, DataSettings) for field in fields(cls)]
    for group, (first, last) in GROUPS.items():
        for name in names[names.index(first) : names.index(last) + 1]:
            assert f" --{name.replace('_', '-')} " in panels[group]
            names.remove(name)
    assert names == []
    assert "[choices: auto] [default: 200]" in panels["Optimization"]
    assert "[choices: auto, yes, no] [default: auto]" in " ".join(panels["Data"].replace("│", " ").split())


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_help_is_as_wide_as_the_terminal(run_cli, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = run_cli("pretrain", "--help")
    assert max(map(len, out.splitlines())) == width


def test_flags_without_values_give_the_default_settings():
    assert parse() == (Settings(), DataSettings())
    assert [type(settings) for settings in parse("--epochs", "3", "--label", "y")] == [Settings, DataSettings]


def test_lists_take_several_values():
    settings, _ = parse("--augment-columns", "numeric", "home city", "--milestones", "60", "80")
    assert (settings.augment_columns, settings.milestones) == (("numeric", "home city"), (60, 80))
    assert parse("--milestones", "--seed", "1")[0].milestones == ()


def test_columns_are_pairs_of_a_name_and_a_kind():
    _, data_settings = parse("--columns", "home city", "categorical", "a.b,c=d", "drop", "--label", "y")
    assert data_settings.columns == {"home city": "categorical", "a.b,c=d": "drop"}


def test_none_is_a_choice_of_augment_and_unsets_other_options():
    settings, data_settings = parse("--augment", "none", "--lr", "none", "--label", "none")
    assert (settings.augment, settings.lr, data_settings.label) == ("none", None, "none")


def test_values_may_be_negative_numbers(run_cli):
    code, _, err = run_cli("pretrain", "digits", "--out", "run", "--weight-decay", "-1e-4")
    assert (code, err) == (2, "imix: --weight-decay must be at least 0; got -0.0001\n")
