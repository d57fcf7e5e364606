"""The SQL statements of the folder ``sql``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> str:
    """Return a statement by its file's name."""
    return (files(__package__) / "sql" / f"{name}.sql").read_text("utf-8")
