"""Runs the `imix` command in this process."""

import sys

import pytest

from imix.cli import main


@pytest.fixture
def run_cli(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["imix", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as error:
            code = error.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
