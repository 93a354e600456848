"""Checks of the memory of this machine."""

import os

from imix.errors import InputError


def check_memory(size: int, content: str, hint: str) -> None:
    """Raise an error if `size` bytes are more than the memory of this machine."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > available:
        raise InputError(
            f"{content} would take {size / 1e9:.1f} GB of memory; this machine has {available / 1e9:.1f} GB: {hint}"
        )
