"""Binds a connection to one client instance by its request headers.

======================================================  ==========================================
Request                                                 Decision
======================================================  ==========================================
SaslHandshake (which cannot carry an id), or an         Admitted and not counted as the first
unknown API key or version                              request. The eighth such request counts as
                                                        a first request with an older header.
First request: header v3 with a non-zero id             Admitted. The connection is bound to the
                                                        id.
First request: header v3 with the zero id               Refused, and not counted as the first
                                                        request.
First request: older header                             Admitted. The connection is bound to no
                                                        id.
Later request on a bound connection: same id            Admitted.
Later request on a bound connection: another id, the    Refused.
zero id
Later request on a bound connection: no id              Refused if the client was offered header
                                                        v3 for this RPC, else admitted.
Later request on an unbound connection                  Refused with the zero id, else admitted.
======================================================  ==========================================

The limit of eight exists because a client that sends only unknown API keys would otherwise have
each of its headers read for the life of the connection.

Owns this table and the client id of the first request, which holds for later requests with a null
client id. How a request is refused is in :mod:`receiver.session.exchanges.refusal`.
"""

from __future__ import annotations

from typing import Final

from receiver.telemetry.identity import MAX_TEXT_CHARS
from receiver.wire import api_keys
from receiver.wire.header_versions import LATEST
from receiver.wire.headers import RequestHeader
from receiver.wire.uuid import ZERO_UUID, Uuid

#: Requests without an id to look at, after which the connection counts as unbound. A client asks
#: for ApiVersions in a version that the receiver does not know, falls back, and tries SASL
#: mechanisms.
_MAX_UNDECIDED: Final = 8


class InstanceBinding:
    """The client instance that one connection is bound to.

    Attributes:
        decided: Whether the first request (or the eighth that does not count) has arrived.
        bound_to: The client instance id of the connection; None if it is bound to none.
    """

    __slots__ = ("_first_client_id", "_undecided", "bound_to", "decided")

    def __init__(self) -> None:
        self._first_client_id: str | None = None
        self._undecided = 0
        self.decided = False
        self.bound_to: Uuid | None = None

    def client_id(self, header: RequestHeader) -> str | None:
        """Return a request's client id, or the first request's if this one has none."""
        return self._first_client_id if header.client_id is None else header.client_id

    def admits(self, header: RequestHeader, *, offered_header_v3: bool) -> bool:
        """Record a request's ids and return whether its client instance id is admitted.

        Args:
            header: The request's header, as far as its version is known.
            offered_header_v3: Whether the client was offered this RPC with header v3.
        """
        if self._first_client_id is None and header.client_id is not None:
            self._first_client_id = header.client_id[:MAX_TEXT_CHARS]
        instance_id = header.client_instance_id
        if instance_id is None and not _has_older_header(header):
            self._count_undecided()
            return True
        if instance_id == ZERO_UUID:
            self._count_undecided()
            return False
        if not self.decided:
            self.decided = True
            self.bound_to = instance_id
        if instance_id is None:
            return self.bound_to is None or not offered_header_v3
        return self.bound_to in {None, instance_id}

    def _count_undecided(self) -> None:
        self._undecided += 1
        self.decided |= self._undecided >= _MAX_UNDECIDED


def _has_older_header(header: RequestHeader) -> bool:
    return header.api_key != api_keys.SASL_HANDSHAKE and 0 <= header.api_version <= LATEST.get(
        header.api_key, -1
    )
