"""An exchange that passes, and whose response is read on its way."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from typing import Final

from receiver.session.exchange import Connection, Exchange, Request, held_memory
from receiver.session.messages import with_correlation_id
from receiver.wire.errors import WireError
from receiver.wire.frame_rewriter import frame
from receiver.wire.headers import RequestHeader

#: Longest response that is read; a longer one passes unread. It has room for about 2,000
#: delegation tokens, which take 10 ms to read.
_MAX_READ_BYTES: Final = 262_144


class ObservedExchange(Exchange):
    """A request that passes under another correlation id.

    So its response is known.
    """

    __slots__ = ("header",)

    def __init__(self, header: RequestHeader) -> None:
        self.header = header

    def begin(self, request: Request, connection: Connection) -> bytes:
        """Return the request for the broker."""
        correlation_id = connection.expect(
            self,
            held_bytes=held_memory(self.header),
            max_read_bytes=_MAX_READ_BYTES,
            client_correlation_id=self.header.correlation_id,
        )
        return frame(with_correlation_id(correlation_id, request.data))

    def responded(self, response: bytes, connection: Connection) -> bytes:
        """See the base class; the client gets the response as it is."""
        with contextlib.suppress(WireError, ValueError):
            self.observe(response, connection)
        return frame(with_correlation_id(self.header.correlation_id, response, at=0))

    @abstractmethod
    def observe(self, response: bytes, connection: Connection) -> None:
        """Read the broker's response, without its length.

        Raises:
            WireError: The response is malformed. It goes on to the client all the same.
            ValueError: As before.
        """
