"""The version of imix, in one place."""

__version__ = "0.1.0"
