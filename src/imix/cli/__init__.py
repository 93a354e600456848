"""The `imix` command: runs the requested subcommand and turns expected errors into one line and an exit code."""

import io
import os
import sys
import traceback
import warnings
from contextlib import suppress

from cyclopts import CycloptsError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError

from imix.cli.app import COMMANDS, build_app
from imix.cli.exits import EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_RESUMABLE, exit_with
from imix.errors import InputError, Interrupted, RunFolderBusy, TrainingError, did_you_mean, out_of_memory
from imix.output import lost_messages, print_message, print_result


def main() -> None:
    """Entry point of the console script."""
    _prepare_streams()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, category, *_, **__: print_message(f"{category.__name__}: {message}")
            _run_command()
    finally:
        _finish_streams()


def _prepare_streams() -> None:
    """Reopen closed streams, so that no file gets their descriptors, and replace characters that cannot be printed."""
    for descriptor, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):  # results on a closed stdout fail
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free descriptor, which is this one
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may be unable to show ±
    sys.excepthook = lambda *error: print_message(*"".join(traceback.format_exception(*error)).splitlines())


def _finish_streams() -> None:
    """Report lost messages; discard output that cannot be written, because Python would fail at exit."""
    if lost_messages:
        with suppress(OSError):
            print_result(f"imix: some messages could not be written to stderr: {lost_messages[0]}")
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run_command() -> None:
    app, name = build_app(), ""
    try:
        command, arguments, _ = app.parse_args(sys.argv[1:])
        name = command.__name__
        command(*arguments.args, **arguments.kwargs)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        sys.exit(EXIT_FAILURE)
    except CycloptsError as error:
        exit_with(_describe(error), EXIT_BAD_INPUT)
    except InputError as error:
        exit_with(str(error), EXIT_BAD_INPUT)
    except RunFolderBusy as error:
        exit_with(str(error), EXIT_RESUMABLE)
    except Interrupted as error:
        exit_with(f"{error}: run the same command{' with --resume' if name == 'pretrain' else ''}", EXIT_RESUMABLE)
    except KeyboardInterrupt:
        exit_with("interrupted", EXIT_INTERRUPTED)
    except (TrainingError, OSError) as error:
        exit_with(str(error), EXIT_FAILURE)
    except (MemoryError, RuntimeError) as error:
        if (reason := out_of_memory(error)) is None:
            raise
        exit_with(f"not enough memory{f': {reason}' if reason else ''}", EXIT_FAILURE)


def _describe(error: CycloptsError) -> str:
    """What is wrong with the arguments, in one line."""
    unused = error.unused_tokens or [""]
    match error:
        case UnknownCommandError():
            suggestion = did_you_mean(unused[0], [*COMMANDS, "--help", "--version"])
            return f"unknown command {unused[0]!r}{suggestion}; choose from {', '.join(COMMANDS)}"
        case UnusedCliTokensError():
            return f"unexpected argument {unused[0]!r} (see --help)"
        case MissingArgumentError(argument=argument, keyword=None) if argument is not None:
            return f"{argument.name} is required (see --help)"
    text = str(error)
    return text[:1].lower() + text[1:]
