"""Why the REST API cannot be served.

Owns the exception only.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ServerError"]


@dataclass(eq=False)
class ServerError(Exception):
    """The REST API cannot be served: the operator must act.

    Attributes:
        setting: The key that it hangs on, for example ``rest.bind``.
        problem: What is wrong, beginning with the key's value.
    """

    setting: str
    problem: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.problem}"
