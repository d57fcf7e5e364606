"""The error that keeps the REST API from starting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class ServerError(Exception):
    """The REST API cannot be served until the operator corrects a setting."""

    setting: str
    problem: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.problem}"
