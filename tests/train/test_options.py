"""Options as keyword arguments: agreement with the settings classes, suggestions, components by name or object."""

from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

import pytest
import torch
from torch import nn

import imix
from imix import DataSettings, InputError, Settings
from imix.train.options import COMPONENTS, Components, Options, collect_options

DATA = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
QUICK = {"epochs": 1, "batch_size": 16, "encoder": "mlp:8-16", "device": "cpu", "progress": False}


def test_every_option_is_a_field_with_the_same_type():
    fields = get_type_hints(Settings) | get_type_hints(DataSettings)
    options = get_type_hints(Options)
    assert options.keys() == fields.keys()
    for name, hint in options.items():
        if name in COMPONENTS:
            assert set(_names(hint)) == set(_names(fields[name])), name
        else:
            assert hint == fields[name], name


def _names(hint):
    """The names that an option accepts, and whether it accepts any str or None."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    literals = [name for member in members if get_origin(member) is Literal for name in get_args(member)]
    return literals + [member for member in members if member in (str, type(None))]


def test_options_equal_a_settings_object():
    by_keyword = imix.pretrain(DATA, method="moco", queue=32, seed=3, **QUICK)
    options = {name: value for name, value in QUICK.items() if name != "progress"}
    by_object = imix.pretrain(DATA, Settings(method="moco", queue=32, seed=3, **options), progress=False)
    assert by_keyword.settings == by_object.settings
    assert torch.equal(by_keyword.encoder(DATA), by_object.encoder(DATA))


def test_options_override_the_objects(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(
        "a,b,y\n" + "".join(f"{i * 0.37 % 1},{i * 0.73 % 1},{'no' if i % 2 else 'yes'}\n" for i in range(40))
    )
    run = imix.pretrain(path, Settings(epochs=7), DataSettings(label="b"), **QUICK, label="y")
    assert run.settings.epochs == 1
    assert run.data_settings.label == "y"


@pytest.mark.parametrize(
    ("option", "suggestion"),
    [("epcohs", "epochs"), ("labell", "label"), ("Method", "method"), ("overwrit", "overwrite")],
)
def test_a_misspelled_option_gets_a_suggestion(option, suggestion):
    with pytest.raises(InputError, match=f"unknown option '{option}' .did you mean '{suggestion}'"):
        imix.pretrain(DATA, progress=False, **{option: 3})
    with pytest.raises(InputError, match=f"unknown option '{option}'"):
        imix.bench(DATA, progress=False, **{option: 3})


def test_components_are_given_by_name_or_as_objects():
    encoder, augment = nn.Linear(6, 4), lambda x: x
    settings, _, components = collect_options(None, None, {"encoder": encoder, "augment": augment, "mix": "none"})
    assert components == Components(encoder=encoder, augment=augment)
    assert (settings.mix, settings.encoder, settings.augment) == ("none", "small", None)


def test_invalid_names_and_objects_are_rejected():
    with pytest.raises(InputError, match="unknown `augment` 'cifra'"):
        imix.pretrain(DATA, augment="cifra", progress=False)
    with pytest.raises(InputError, match=r"`settings` must be imix\.Settings"):
        imix.pretrain(DATA, {"epochs": 3}, progress=False)
    with pytest.raises(InputError, match=r"`encoder` must be an nn\.Module"):
        imix.pretrain(DATA, encoder=3, progress=False)
