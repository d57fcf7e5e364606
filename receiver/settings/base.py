"""What all sections of the configuration have in common.

Owns the strictness of the models: an unknown key is an error, values don't change, and no error shows what
was put in.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Settings"]


class Settings(BaseModel):
    """The base of every section."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)
