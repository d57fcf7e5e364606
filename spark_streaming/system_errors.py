"""Reasons of the operating system, for errors that people read."""

from __future__ import annotations


def reason_of(error: OSError) -> str:
    """Return why a call of the system failed, without its number and file.

    An error that Python or a library raises itself may have a text alone, or nothing at all.
    """
    return error.strerror or str(error) or type(error).__name__
