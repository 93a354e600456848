"""`imix reproduce` on the command line."""

import sys

import pytest

from imix.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table9"], "unknown table or figure 'table9'"),
        ([], "no table or figure given"),
        (["table1", "--shard", "x"], "shard must be I/N"),
        (["table1", "--row", "mnist"], "has no row"),
        (["table1", "--devices", "cuda:99"], "cuda:99"),
        (["table1", "--devices"], "at least one device"),
    ],
)
def test_invalid_arguments_are_one_line_errors(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["imix", "reproduce", *arguments, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert exit_info.value.code == 2
    stderr = capsys.readouterr().err
    assert message in stderr and stderr.count("\n") == 1


def test_list_prints_all_tables(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["imix", "reproduce", "--list", "--out", str(tmp_path)])
    main()
    assert "tableC3" in capsys.readouterr().out
