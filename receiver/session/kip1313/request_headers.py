"""Reads the request headers of one connection and translates them.

Owns which header version a request has (by its API key, its version and what the client was
offered), and the header without a client instance id that replaces header v3 for a broker that
lacks it. It must not read request bodies.
"""

from __future__ import annotations

from struct import Struct

from receiver.brokers.upstream import Upstream
from receiver.session.kip1313.instance_binding import InstanceBinding
from receiver.wire.header_versions import LATEST
from receiver.wire.headers import (
    RequestHeader,
    decode_request_header,
    encode_request_header,
    request_header_version,
)
from receiver.wire.primitives import Reader
from receiver.wire.uuid import Uuid

_KEY_AND_VERSION = Struct(">hh")


class RequestHeaders:
    """Reads, admits and translates request headers of one connection for its broker."""

    __slots__ = ("_binding", "_upstream")

    def __init__(self, upstream: Upstream) -> None:
        self._binding = InstanceBinding()
        self._upstream = upstream

    @property
    def must_read_all(self) -> bool:
        """Whether every request's header has to be read.

        That holds until a request has bound the connection, and always for the translation.
        """
        return self._upstream.translates or not self._binding.decided

    @property
    def binding_decided(self) -> bool:
        """Whether the connection is bound to a client instance, or to none for good."""
        return self._binding.decided

    @property
    def bound_to(self) -> Uuid | None:
        """The client instance id that the connection is bound to.

        None if it is bound to none.
        """
        return self._binding.bound_to

    def version(self, api_key: int, api_version: int) -> int:
        """Return the version of a request's header, 0 to 3.

        An unknown API key gives 0: not even the client id is read, because the frame may be a SASL
        token without a request header.
        """
        if api_key not in LATEST:
            return 0
        return request_header_version(api_key, api_version, translated=self._upstream.translated)

    def read(self, request: bytes) -> tuple[RequestHeader, Reader]:
        """Read a request's header; return it and a reader that is at the body.

        Args:
            request: The request, or its beginning, without its length.

        Raises:
            WireError: The header is malformed.
        """
        reader = Reader(request)
        return decode_request_header(reader, self.version(*_KEY_AND_VERSION.unpack_from(request))), reader

    def admit(self, header: RequestHeader) -> bool:
        """Record a request's ids and return whether its client instance id is admitted."""
        return self._binding.admits(
            header, offered_header_v3=header.api_key in self._upstream.offered_with_header_v3
        )

    def client_id(self, header: RequestHeader) -> str | None:
        """Return the client id that holds for a request."""
        return self._binding.client_id(header)

    def is_translated(self, header: RequestHeader) -> bool:
        """Return whether the broker gets this request in the previous version."""
        return header.client_instance_id is not None and header.api_key in self._upstream.translated

    def translated(self, header: RequestHeader) -> bytes:
        """Write the header for the broker: a version lower, without instance id.

        The client id of the connection's first request replaces a null one.
        """
        return encode_request_header(
            RequestHeader(
                api_key=header.api_key,
                api_version=header.api_version - 1,
                correlation_id=header.correlation_id,
                client_id=self._binding.client_id(header),
                tagged_fields=header.tagged_fields,
            )
        )
