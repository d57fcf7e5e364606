"""The error that keeps the REST API from starting."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ServerError"]


@dataclass(eq=False)
class ServerError(Exception):
    """The REST API cannot be served until the operator corrects a setting.

    Attributes:
        setting: The key of the setting, for example ``rest.bind``.
        problem: The key's value and what is wrong with it.
    """

    setting: str
    problem: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.problem}"
