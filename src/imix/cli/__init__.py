"""The `imix` command: runs the requested subcommand and turns expected errors into one line and an exit code."""

import contextlib
import functools
import inspect
import io
import itertools
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import tyro

from imix._version import __version__
from imix.cli.commands import COMMANDS
from imix.errors import InputError, Interrupted, TrainingError, did_you_mean, first_line, printable
from imix.settings import DataSettings, Settings

TRISTATE_FLAGS = ("--compile", "--cuda-graph")  # True, False or None: on, off, or decided by imix
# Exit codes; 75 is EX_TEMPFAIL: the command can be run again to continue.
EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_RESUMABLE, EXIT_INTERRUPTED = 2, 1, 75, 130


def main() -> None:
    """Entry point of the console script."""
    if sys.argv[1:] == ["--version"]:
        print(f"imix {__version__}")
        return
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # do not fail on a terminal that cannot show ±
    if sys.argv[1:2] == ["pretrain"]:  # until pretrain() installs its own handler; importing torch takes seconds
        signal.signal(signal.SIGTERM, _stop_before_start)
    try:
        _parse()()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILURE)
    except InputError as error:
        _exit(str(error), EXIT_BAD_INPUT)
    except TrainingError as error:
        _exit(str(error), EXIT_FAILURE)
    except Interrupted as error:
        flag = " with --resume" if sys.argv[1:2] == ["pretrain"] else ""
        _exit(f"{error}: run the same command{flag}", EXIT_RESUMABLE)
    except KeyboardInterrupt:
        _exit("interrupted", EXIT_INTERRUPTED)
    except OSError as error:
        _exit(str(error), EXIT_FAILURE)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":  # torch's, for a GPU
            raise
        _exit(f"not enough memory{f': {first_line(error)}' if str(error) else ''}", EXIT_FAILURE)


def _parse() -> Callable[[], None]:
    """The requested command with its arguments, ready to be called; raises InputError if they cannot be parsed."""
    names = [function.__name__ for function in COMMANDS]
    for word in sys.argv[1:2]:
        if word not in names and not word.startswith("-"):
            raise InputError(f"unknown command {word!r}{did_you_mean(word, names)}; choose from {', '.join(names)}")
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            command: Callable[[], None] = tyro.extras.subcommand_cli_from_dict(
                {function.__name__: _deferred(function) for function in COMMANDS},
                prog="imix",
                description="Contrastive representation learning with i-Mix for any data. See also --version.",
                args=_expand_tristate_flags(sys.argv[1:]),
            )
    except SystemExit as error:
        if error.code:
            raise InputError(_one_line(stderr.getvalue()) + _suggest_flag(sys.argv[1:])) from None
        raise
    return command


def _suggest_flag(words: list[str]) -> str:
    """A suggestion for the first unknown flag, if a known one is similar."""
    parameters = [inspect.signature(function).parameters for function in COMMANDS if function.__name__ in words[:1]]
    settings = [field.name for group in (Settings, DataSettings) for field in fields(group)]
    known = [f"--{name.replace('_', '-')}" for name in (*itertools.chain(*parameters), *settings)]
    flags = [word.replace("_", "-") for word in words if word.startswith("--")]
    unknown = [flag for flag in flags if flag.replace("--no-", "--", 1) not in known]
    return did_you_mean(unknown[0], known) if unknown else ""


def _expand_tristate_flags(words: list[str]) -> list[str]:
    """Add the value to tristate flags: `--compile` becomes `--compile True`, `--no-compile` `--compile False`."""
    expanded = []
    for word, next_word in itertools.pairwise([*words, ""]):
        flag = word.replace("_", "-") if word.startswith("--") else word
        positive = flag.replace("--no-", "--", 1)
        if positive in TRISTATE_FLAGS and (flag != positive or next_word not in ("True", "False", "None")):
            expanded += [positive, str(flag == positive)]
        else:
            expanded.append(word)
    return expanded


def _deferred(function: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """The function with its call postponed, so that parsing errors can be distinguished from errors of the command."""

    @functools.wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], None]:
        return functools.partial(function, *args, **kwargs)

    return bind


def _one_line(message: str) -> str:
    """The first paragraph of tyro's error message, without the title and the box around it (Unicode or ASCII)."""

    def is_border(line: str) -> bool:
        return line.startswith(("╭", "╰")) or not line.strip("─-")

    lines = [line.strip(" │") for line in message.splitlines()]
    borders = [i for i, line in enumerate(lines) if is_border(line)]
    paragraph = lines[borders[0] + 1 : borders[1]] if len(borders) > 1 else lines
    text = re.sub(r"^Error parsing __tyro-dummy-inner__\.[\w-]+: ", "", " ".join(paragraph))
    return text.replace("Failed to parse key-value pairs!", "expected pairs: NAME KIND NAME KIND") + " (see --help)"


def _stop_before_start(signal_number: int, frame: Any) -> None:
    _exit("stopped before the run started: run the same command with --resume", EXIT_RESUMABLE)


def _exit(message: str, code: int) -> None:
    print(f"imix: {printable(message)}", file=sys.stderr)
    sys.exit(code)
