"""Who answers calls in the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from receiver.link.messages import Answer, Call
from receiver.telemetry.identity import ClientIdentity

#: Receives the answer to a call, once: before the call returns or later.
Reply: TypeAlias = Callable[[Answer], None]


class Answering(Protocol):
    """Answers the calls of one kind of request."""

    @property
    def keys(self) -> frozenset[int]:
        """The API keys of the requests."""

    def call(self, identity: ClientIdentity, call: Call, reply: Reply) -> None:
        """Answer a call; raise WireError if the request is malformed."""
