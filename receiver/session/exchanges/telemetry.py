"""GetTelemetrySubscriptions and PushTelemetry: the core answers (KIP-714).

The broker gets a *marker* in the request's place: Metadata for no topics. A broker answers it only
on authenticated connections, so the broker decides who may push. The request is decided when the
marker's response arrives. Between SaslHandshake and the end of authentication a broker answers any
request with ILLEGAL_SASL_STATE before it closes. Such an error is passed on, and the push is not
accepted. The body is read by the core alone.
"""

from __future__ import annotations

from typing import ClassVar, Final

from receiver.session.call import OpenCall
from receiver.session.effects import UnauthenticatedTelemetry
from receiver.session.exchange import Connection, Exchange, Kind, Request, held_memory
from receiver.session.messages import marker, telemetry_error, with_throttle_time
from receiver.wire import api_keys, k03_metadata
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.headers import at_body
from receiver.wire.telemetry_requests import SUPPORTED_VERSIONS


class TelemetryExchange(Exchange, OpenCall):
    """A telemetry request: its marker is with the broker, then its call with the core."""

    __slots__ = ("_marker_version", "_throttle_time_ms", "body", "cut_beyond", "header", "held_bytes")

    answer_within_s: ClassVar[float] = 0.8

    def __init__(self, request: Request, cut_beyond: int | None, marker_version: int) -> None:
        self.header = request.header
        self.body = request.data[request.reader.offset :]
        self.cut_beyond = cut_beyond
        self.held_bytes = held_memory(self.header, self.body)
        self._marker_version = marker_version
        self._throttle_time_ms = 0  # of the marker's response

    def responded(self, response: bytes, connection: Connection) -> bytes:
        """See the base class; the response is the marker's."""
        version = self._marker_version
        is_error = k03_metadata.is_error(at_body(response, api_keys.METADATA, version), version)
        # A broker that answers without a login, although one is required, is not trusted.
        if is_error or not connection.login.authenticated:
            connection.emit(UnauthenticatedTelemetry(self.header))
            return telemetry_error(self.header, ErrorCode.ILLEGAL_SASL_STATE)
        if connection.broker.wants_cluster:
            body = at_body(response, api_keys.METADATA, version)
            connection.broker.record_cluster(k03_metadata.decode_cluster(body, version))
        connection.marker_answered()
        self._throttle_time_ms = k03_metadata.decode_throttle_time_ms(
            at_body(response, api_keys.METADATA, version), version
        )
        connection.open_call(self, self.held_bytes)
        return b""

    def answered(self, answer: bytes) -> bytes:
        """See the base class; the broker's throttle time goes on to the client (KIP-124)."""
        return with_throttle_time(answer, self._throttle_time_ms) if self._throttle_time_ms else answer

    def unanswered(self) -> bytes:
        """See the base class; clients recover by themselves (KIP-714, "Throttling")."""
        return telemetry_error(self.header, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def _begin(request: Request, connection: Connection) -> bytes:
    header = request.header
    versions = SUPPORTED_VERSIONS[header.api_key]
    if header.api_version not in versions:
        # Kafka closes the connection. Only ApiVersions is answered UNSUPPORTED_VERSION (KIP-511).
        raise WireError(
            expected=f"{api_keys.api_name(header.api_key)} version {versions[0]} to {versions[-1]}",
            offset=2,
            found=f"version {header.api_version}",
        )
    at_once = connection.answer_at_once()
    version = 0 if at_once else connection.upstream.metadata_version()
    exchange = TelemetryExchange(request, connection.max_push_bytes if request.cut else None, version)
    if at_once:
        connection.open_call(exchange, exchange.held_bytes)
        return b""
    return marker(
        request.client_id, version, connection.expect(exchange, held_bytes=exchange.held_bytes, decides=True)
    )


KIND: Final = Kind(
    keys=frozenset(SUPPORTED_VERSIONS),
    begin=_begin,
    answered_here=True,
)
