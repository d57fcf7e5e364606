"""Replaces files as operators should: a reader sees the old content or the new one."""

from __future__ import annotations

from pathlib import Path


def replace(file: Path, content: str | bytes) -> None:
    """Write a file, or put another in its place, in one step.

    A file that is written in place is empty for a moment.
    """
    new = file.with_suffix(".new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.rename(file)
