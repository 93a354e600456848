"""Exit codes of the `imix` command."""

import sys
from typing import NoReturn

from imix.errors import printable

# 75 is EX_TEMPFAIL: the command can be run again to continue.
EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_RESUMABLE, EXIT_INTERRUPTED = 2, 1, 75, 130


def exit_with(message: str, code: int) -> NoReturn:
    """Print the message as one line and exit."""
    print(f"imix: {printable(message)}", file=sys.stderr)
    sys.exit(code)
