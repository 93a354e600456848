"""Messages of the library name Python options; those of the command line name flags."""

import ast
import re
from pathlib import Path

import pytest

import imix
from imix.cli.app import all_flags
from imix.cli.exits import with_flags

SOURCE = Path(imix.__file__).parent
WRITES_COMMANDS = ("reproduce/plan.py",)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("`batch_size` must be above 0", "--batch-size must be above 0"),
        ("use `resume=True` or `sync_bn=False`", "use --resume or --no-sync-bn"),
        ("`header='yes'`, `data_dir=FOLDER`", "--header yes, --data-dir FOLDER"),
        ("`columns={'home city': 'drop'}`", "--columns 'home city' drop"),
        ("`keep=['a', 'b']`", "--keep a b"),
        ("an attribute `width`; `wings=3`", "an attribute `width`; `wings=3`"),
    ],
)
def test_options_in_backticks_become_flags(message, expected):
    assert with_flags(message) == expected


def test_an_error_names_the_argument_in_python_and_the_flag_on_the_command_line(run_cli, tmp_path):
    arguments = ["pretrain", "digits", "--epochs", "1", "--encoder", "mlp:8", "--device", "cpu", "--out", tmp_path]
    assert run_cli(*arguments)[0] == 0
    with pytest.raises(imix.InputError, match="use `resume=True` to continue it or `overwrite=True` to replace it"):
        imix.pretrain("digits", out=tmp_path, progress=False)
    code, _, err = run_cli(*arguments)
    assert (code, err.endswith("; use --resume to continue it or --overwrite to replace it\n")) == (2, True)


def test_no_message_of_the_library_names_a_flag():
    flags = all_flags()
    found = []
    for path in SOURCE.rglob("*.py"):
        name = str(path.relative_to(SOURCE))
        if not name.startswith("cli/") and name not in WRITES_COMMANDS:
            texts = _texts(ast.parse(path.read_text()))
            found += [(name, text) for text in texts if flags & set(re.findall(r"--[a-z][a-z-]*", text))]
    assert found == []


def _texts(tree: ast.Module) -> list[str]:
    """All strings of a module except those that stand alone, which are docstrings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node.value for node in strings if id(node) not in alone]


@pytest.mark.parametrize(
    ("option", "value", "code", "message"),
    [
        ("--queue", 10**12, 1, "imix: not enough memory: can't allocate memory: you tried to allocate 512000000000000"),
        ("--queue", 10**18, 1, "imix: not enough memory: Storage size calculation overflowed"),
        ("--queue", 10**23, 2, "imix: --queue must be below 2^63; got 1e+23"),
        ("--encoder", "mlp:100000000000-8", 1, "imix: not enough memory: can't allocate memory"),
        ("--encoder", "mlp:" + "9" * 5000, 2, "imix: unknown encoder 'mlp:9999"),
    ],
    ids=["queue", "overflow", "integer", "encoder", "digits"],
)
def test_settings_that_exceed_the_memory_are_one_line(run_cli, tmp_path, option, value, code, message):
    arguments = ["pretrain", "digits", "--method", "moco", "--device", "cpu", "--out", tmp_path / "run"]
    exit_code, _, err = run_cli(*arguments, option, value)
    assert (exit_code, len(err.splitlines())) == (code, 1)
    assert err.startswith(message)
