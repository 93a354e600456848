"""Exit codes of the `imix` command, and its error messages."""

import re
import shlex
import sys
from typing import NoReturn

from imix.output import print_message

# 75 is EX_TEMPFAIL: the command can be run again to continue.
EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_RESUMABLE, EXIT_INTERRUPTED = 2, 1, 75, 130


def exit_with(message: str, code: int) -> NoReturn:
    """Print the message as one line and exit."""
    print_message(f"imix: {with_flags(message)}")
    sys.exit(code)


def with_flags(message: str) -> str:
    """Replace the Python options in a message of the library, which are in backticks, by the flags of the command line.

    >>> with_flags("use `resume=True`, another `batch_size` or `columns={'id': 'drop'}`")
    'use --resume, another --batch-size or --columns id drop'
    """
    from imix.cli.app import all_flags  # this module is imported by the commands

    def replace(match: re.Match[str]) -> str:
        name, value = match[1].replace("_", "-"), match[2]
        if f"--{name}" not in all_flags():
            return match[0]
        if value in (None, "True", "False"):
            return f"--no-{name}" if value == "False" else f"--{name}"
        words = re.findall(r"""'[^']*'|"[^"]*"|[^\s{}\[\]:,]+""", value)  # of a string, list or dict
        return shlex.join([f"--{name}", *(word.strip("'\"") for word in words)])

    return re.sub(r"`(\w+)(?:=([^`]+))?`", replace, message)
