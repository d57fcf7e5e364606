"""Refuses query parameters of paths that have none.

Paths with parameters name them in a model that forbids others.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Query
from pydantic import BaseModel, ConfigDict


class ForbiddingModel(BaseModel):
    """The query parameters of a path; others are refused."""

    model_config = ConfigDict(extra="forbid")


class _NoParameters(ForbiddingModel):
    """No query parameter."""


async def _no_query(query: Annotated[_NoParameters, Query()]) -> None:
    pass


#: A dependency of a path without query parameters.
NO_QUERY: Final = Depends(_no_query)
