"""The request headers of one connection: how each is read, whose they are, and what the broker gets for them.

Owns the version of a header, by the RPC, its version and what the client was offered, and the translation of
KIP-1313's version of a request into the one before, for a broker that lacks it. It must not know what is in a
request.
"""

from __future__ import annotations

from struct import Struct

from receiver.session.client_identity import ClientIdentity
from receiver.session.upstream import Upstream
from receiver.telemetry.connection import Connection
from receiver.wire.header_versions import LATEST
from receiver.wire.headers import (
    RequestHeader,
    decode_request_header,
    encode_request_header,
    request_header_version,
)
from receiver.wire.primitives import Reader

__all__ = ["RequestHeaders"]

_KEY_AND_VERSION = Struct(">hh")


class RequestHeaders:
    """Reads and translates them.

    Args:
        connection: Its entry in the registry; client id and client instance id are set here.
        upstream: What the broker speaks.
    """

    __slots__ = ("_identity", "_upstream")

    def __init__(self, connection: Connection, upstream: Upstream) -> None:
        self._identity = ClientIdentity(connection)
        self._upstream = upstream

    @property
    def all_matter(self) -> bool:
        """Whether each request's header has to be looked at: the first one's, or those to be translated."""
        return self._upstream.translates or not self._identity.decided

    @property
    def decided(self) -> bool:
        """Whether it is known which client instance the connection belongs to, if any."""
        return self._identity.decided

    def version(self, api_key: int, api_version: int) -> int:
        """Tell the version of a request's header: 0 to 3.

        Of a key that nobody knows, 0: not even the client id can be read, as it may be a bare token.
        """
        if api_key not in LATEST:
            return 0
        return request_header_version(api_key, api_version, translated=self._upstream.translated)

    def read(self, request: bytes) -> tuple[RequestHeader, Reader]:
        """Read a request's header.

        Args:
            request: The request, or its beginning, without its length.

        Returns:
            The header, and a reader at the body.

        Raises:
            WireError: The bytes are no such header.
        """
        reader = Reader(request)
        return decode_request_header(reader, self.version(*_KEY_AND_VERSION.unpack_from(request))), reader

    def admit(self, header: RequestHeader) -> bool:
        """Take note of a request; say whether its client instance id is right (KIP-1313)."""
        return self._identity.admits(header, may_name_it=header.api_key in self._upstream.with_header_v3)

    def client_id(self, header: RequestHeader) -> str | None:
        """Return the client id that holds for a request."""
        return self._identity.client_id(header)

    def is_translated(self, header: RequestHeader) -> bool:
        """Whether the broker gets the version before of this request."""
        return header.client_instance_id is not None and header.api_key in self._upstream.translated

    def before(self, header: RequestHeader) -> bytes:
        """Write the header of the version before, without the client instance id, with the client id."""
        return encode_request_header(
            RequestHeader(
                api_key=header.api_key,
                api_version=header.api_version - 1,
                correlation_id=header.correlation_id,
                client_id=self._identity.client_id(header),
                tagged_fields=header.tagged_fields,
            )
        )
