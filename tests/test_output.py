"""Printing: control characters are escaped, and a stream that is closed or full does not stop the work."""

import ast
import io
import sys
from pathlib import Path

import pytest

import imix
from imix import output
from imix.errors import StorageError

SOURCE = Path(imix.__file__).parent
BIDI_OVERRIDE = "\u202e"


class BrokenStream(io.StringIO):
    def write(self, text):
        raise OSError(28, "No space left on device")


@pytest.fixture(autouse=True)
def _no_lost_messages(monkeypatch):
    monkeypatch.setattr(output, "lost_messages", [])


@pytest.mark.parametrize("print_lines", [output.print_message, output.print_result])
def test_each_argument_is_one_line_without_control_characters(print_lines, capsys):
    print_lines(f"a\x1b]0;x\x07\r\x9b{BIDI_OVERRIDE}b\nc", "", 3)
    captured = capsys.readouterr()
    assert captured.out + captured.err == r"a\x1b]0;x\x07\r\x9b\u202eb\nc" + "\n\n3\n"


@pytest.mark.parametrize("stream", [BrokenStream(), None])
def test_a_message_that_cannot_be_printed_is_remembered(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    for _ in range(3):
        output.print_message("hello")
    assert len(output.lost_messages) == (0 if stream is None else 1), "a closed stderr is intended"


def test_a_stream_that_was_closed_in_python_does_not_stop_the_work(monkeypatch):
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", stream)
    output.print_message("hello")
    assert not output.stderr_is_terminal()
    with pytest.raises(StorageError, match="cannot write to stdout: I/O operation on closed file"):
        output.print_result("hello")


def test_a_result_that_cannot_be_printed_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", BrokenStream())
    with pytest.raises(StorageError, match=r"cannot write to stdout: .*No space left"):
        output.print_result("hello")


def test_a_tolerant_stream_ignores_errors_and_has_the_attributes_of_its_stream():
    stream = output.TolerantStream(BrokenStream())
    stream.write("hello")
    stream.flush()
    assert stream.isatty() is False and len(output.lost_messages) == 1


def test_the_library_prints_through_this_module_only():
    found = []
    for path in SOURCE.rglob("*.py"):
        if path.name != "output.py":
            calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            names = [ast.unparse(call.func) for call in calls]
            found += [path for name in names if name == "print" or name.endswith((".stderr.write", ".stdout.write"))]
    assert found == []
