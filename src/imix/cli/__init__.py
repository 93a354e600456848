"""The `imix` command: runs the requested subcommand and turns expected errors into one line and an exit code."""

import io
import os
import sys

from cyclopts import CycloptsError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError

from imix.cli.app import COMMANDS, build_app
from imix.cli.exits import EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_RESUMABLE, exit_with
from imix.errors import InputError, Interrupted, RunFolderBusy, TrainingError, did_you_mean, first_line


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # do not fail on a terminal that cannot show ±
    app, name = build_app(), ""
    try:
        command, arguments, _ = app.parse_args(sys.argv[1:])
        name = command.__name__
        command(*arguments.args, **arguments.kwargs)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
        if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":  # torch's, for a GPU
            raise
        exit_with(f"not enough memory{f': {first_line(error)}' if str(error) else ''}", EXIT_FAILURE)


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
