"""The base class of every section of the configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from spark_streaming.plain_yaml import Loc


class Settings(BaseModel):
    """An immutable section that rejects unknown keys and shows no values in errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)


class KeyMistakeError(ValueError):
    """A mistake that several keys make together, and the key to change.

    Args:
        problem: What is wrong, and the fix, without key and value.
        loc: The key's path below what the validator checks.
    """

    def __init__(self, problem: str, *loc: str | int) -> None:
        super().__init__(problem)
        self.loc: Loc = loc
