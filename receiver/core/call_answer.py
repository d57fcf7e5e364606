"""The answer to a call of a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["CallAnswer", "Reply"]


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """The answer to a call.

    Attributes:
        token: The token of the call.
        frame: The answer as a frame.
        throttled: Whether the client is over a limit, so that it is not read from for a while.
    """

    token: int
    frame: bytes
    throttled: bool


#: Receives the answer to a call, once: before the call returns or later.
Reply: TypeAlias = Callable[[CallAnswer], None]
