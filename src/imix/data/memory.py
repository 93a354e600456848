"""Checks of the memory of this machine."""

import os

from imix.errors import InputError


def total_memory() -> int:
    """Return the bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(size: int, content: str, hint: str) -> None:
    """Raise an error if `size` bytes are more than the memory of this machine."""
    available = total_memory()
    if size > available:
        raise InputError(
            f"{content} would take {size / 1e9:.1f} GB of memory; this machine has {available / 1e9:.1f} GB: {hint}"
        )
