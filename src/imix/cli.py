"""The `imix` command: finds the one that was asked for, and says in one line what went wrong."""

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

import imix
from imix.commands import COMMANDS
from imix.errors import InputError, Interrupted, TrainingError, did_you_mean, first_line, printable
from imix.settings import Reading, Settings

SWITCHES = ("--compile", "--cuda-graph")
BAD_INPUT, FAILED, RESUME_ME = 2, 1, 75  # exit codes; 75 is EX_TEMPFAIL: run the command again with --resume


def main() -> None:
    """Entry point of the console script."""
    if sys.argv[1:] == ["--version"]:
        print(f"imix {imix.__version__}")
        return
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± is no reason to fail
    if sys.argv[1:2] == ["pretrain"]:  # until pretraining listens itself: torch takes seconds to import
        signal.signal(signal.SIGTERM, _stop)
    try:
        _parse()()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except InputError as error:
        _leave(str(error), BAD_INPUT)
    except TrainingError as error:
        _leave(str(error), FAILED)
    except Interrupted as error:
        again = " with --resume" if sys.argv[1:2] == ["pretrain"] else ""
        _leave(f"{error}: the same command{again}", RESUME_ME)
    except KeyboardInterrupt:
        _leave("interrupted", 130)
    except OSError as error:
        _leave(str(error), FAILED)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":  # torch's, of a GPU
            raise
        _leave(f"there is not enough memory{f': {first_line(error)}' if str(error) else ''}", FAILED)


def _parse() -> Callable[[], None]:
    """The command that was asked for, ready to be called; what cannot be parsed is said in one line."""
    names = [function.__name__ for function in COMMANDS]
    for word in sys.argv[1:2]:
        if word not in names and not word.startswith("-"):
            raise InputError(f"there is no command {word!r}{did_you_mean(word, names)}; there are {', '.join(names)}")
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            command: Callable[[], None] = tyro.extras.subcommand_cli_from_dict(
                {function.__name__: _deferred(function) for function in COMMANDS},
                prog="imix",
                description="Contrastive representation learning with i-Mix, for any data. --version tells which imix.",
                args=_spelled_out(sys.argv[1:]),
            )
    except SystemExit as leaving:
        if leaving.code:
            raise InputError(_one_line(complaint.getvalue()) + _nearest(sys.argv[1:])) from None
        raise
    return command


def _nearest(words: list[str]) -> str:
    """What the first flag that is unknown may have been meant to be."""
    asked = [inspect.signature(function).parameters for function in COMMANDS if function.__name__ in words[:1]]
    names = [*itertools.chain(*asked), *(field.name for kind in (Settings, Reading) for field in fields(kind))]
    known = [f"--{name.replace('_', '-')}" for name in names]
    flags = [word.replace("_", "-") for word in words if word.startswith("--")]
    strange = [flag for flag in flags if flag.replace("--no-", "--", 1) not in known]
    return did_you_mean(strange[0], known) if strange else ""


def _spelled_out(words: list[str]) -> list[str]:
    """Flags that are on, off or left to imix, with the value that `--compile` and `--no-compile` stand for."""
    found = []
    for word, after in itertools.pairwise([*words, ""]):
        plain = word.replace("_", "-") if word.startswith("--") else word
        name = plain.replace("--no-", "--", 1)
        if name in SWITCHES and (plain != name or after not in ("True", "False", "None")):
            found += [name, str(plain == name)]
        else:
            found.append(word)
    return found


def _deferred(function: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    @functools.wraps(function)
    def later(*args: Any, **kwargs: Any) -> Callable[[], None]:
        return functools.partial(function, *args, **kwargs)

    return later


def _one_line(boxed: str) -> str:
    """The first paragraph of tyro's message, which comes under a title and within rules, drawn in Unicode or ASCII."""

    def is_rule(line: str) -> bool:
        return line.startswith(("╭", "╰")) or not line.strip("─-")

    lines = [line.strip(" │") for line in boxed.splitlines()]
    rules = [number for number, line in enumerate(lines) if is_rule(line)]
    paragraph = lines[rules[0] + 1 : rules[1]] if len(rules) > 1 else lines
    message = re.sub(r"^Error parsing __tyro-dummy-inner__\.\w+: ", "", " ".join(paragraph))
    return message.replace("Failed to parse key-value pairs!", "it takes pairs, NAME KIND NAME KIND") + " (see --help)"


def _stop(number: int, frame: Any) -> None:
    _leave("stopped before the run began; to go on: the same command with --resume", RESUME_ME)


def _leave(message: str, code: int) -> None:
    print(f"imix: {printable(message)}", file=sys.stderr)
    sys.exit(code)
