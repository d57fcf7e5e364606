"""Which client instance a connection belongs to, as its request headers say it (KIP-1313).

===========================================================  ==========================================
a request                                                    is
===========================================================  ==========================================
SaslHandshake, which cannot carry an id, or of a key or      admitted; the next one is still the first, but
version that nobody knows                                    for the eighth of these, which counts as one
                                                             with an older header
the first, with header v3 and a non-zero id                  admitted; the id holds for the connection
the first, with header v3 and the zero id                    refused
the first, with an older header                              admitted; the connection is bound to no id
a later one, on a connection that is bound to an id, with    admitted
the same
a later one there with another, the zero id, or none         refused; without one it is admitted if the
                                                             client was not offered the RPC with header v3
a later one on any other connection                          admitted, unless it has the zero id
===========================================================  ==========================================

Without the bound, a client that sends nothing but unknown API keys would have each of its headers
read for ever.

Owns this rule and the client id that the first request named, which holds where a later one carries null. It
must not know how a request is refused.
"""

from __future__ import annotations

from typing import Final

from receiver.telemetry.connection import MAX_TEXT_CHARS, Connection
from receiver.wire import api_keys
from receiver.wire.header_versions import LATEST
from receiver.wire.headers import RequestHeader
from receiver.wire.uuid import ZERO_UUID, Uuid

__all__ = ["ClientIdentity"]

#: Requests that may come before one that decides: a client asks for ApiVersions in a version that the
#: receiver does not know, falls back, and names a SASL mechanism or two.
_MAX_UNDECIDED: Final = 8


class ClientIdentity:
    """The client instance of one connection.

    Args:
        connection: Its entry in the registry; client id and client instance id are set here.

    Attributes:
        decided: Whether the first request has been seen, or what takes its place in the rule.
        bound_to: The client instance id that holds for the connection; None without one.
    """

    __slots__ = ("_connection", "_first_client_id", "_undecided", "bound_to", "decided")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._first_client_id: str | None = None
        self._undecided = 0
        self.decided = False
        self.bound_to: Uuid | None = None

    def client_id(self, header: RequestHeader) -> str | None:
        """Return the client id of a request: its own or, where it has none, the connection's first."""
        return self._first_client_id if header.client_id is None else header.client_id

    def admits(self, header: RequestHeader, *, may_name_it: bool) -> bool:
        """Take note of a request; say whether its client instance id is right.

        Args:
            header: Its header, as far as that is known.
            may_name_it: Whether the client was offered the RPC with header v3.
        """
        if self._first_client_id is None and header.client_id is not None:
            self._first_client_id = header.client_id[:MAX_TEXT_CHARS]
        client_id = self.client_id(header)
        if client_id is not None:
            self._connection.client_id = client_id[:MAX_TEXT_CHARS]
        named = header.client_instance_id
        if named is None and not _has_an_older_header(header):
            self._undecided += 1
            self.decided |= self._undecided >= _MAX_UNDECIDED
            return True
        if not self.decided:
            self.decided = True
            self.bound_to = named
            if named is not None:
                self._connection.client_instance_id = named
        if named is None:
            return self.bound_to is None or not may_name_it
        return named != ZERO_UUID and (self.bound_to is None or named == self.bound_to)


def _has_an_older_header(header: RequestHeader) -> bool:
    return header.api_key != api_keys.SASL_HANDSHAKE and 0 <= header.api_version <= LATEST.get(
        header.api_key, -1
    )
