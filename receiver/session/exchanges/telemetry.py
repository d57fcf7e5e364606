"""GetTelemetrySubscriptions and PushTelemetry: answered by the telemetry core (KIP-714).

The broker gets a *marker* in the request's place: Metadata for no topics. A broker answers it only
on authenticated connections, so the broker decides who may push. The request is decided when the
marker's response arrives. Between SaslHandshake and the end of authentication a broker answers any
request with ILLEGAL_SASL_STATE before it closes. Such an error is passed on, and the push is not
accepted.
"""

from __future__ import annotations

from typing import Final

from receiver.session.effects import TelemetryCall, TelemetryRequest, UnauthenticatedTelemetry
from receiver.session.exchange import Connection, Exchange, Kind, Request
from receiver.session.messages import decode_telemetry, marker, telemetry_error, with_throttle_time
from receiver.wire import api_keys, k03_metadata
from receiver.wire.error_codes import ErrorCode
from receiver.wire.headers import RequestHeader, at_body

__all__ = ["KIND"]


class TelemetryExchange(Exchange):
    """A telemetry request: first its marker is with the broker, then the call with the core."""

    __slots__ = ("_header", "_held_bytes", "_marker_version", "_request", "_throttle_time_ms")

    def __init__(self, header: RequestHeader, request: TelemetryRequest, held_bytes: int) -> None:
        self._header = header
        self._request = request
        self._held_bytes = held_bytes
        self._marker_version = 0
        self._throttle_time_ms = 0  # of the marker's response

    def begin(self, client_id: str | None, connection: Connection) -> bytes:
        """Open the call at once if the order allows it, else return the marker."""
        if connection.answer_at_once():
            self._call(connection)
            return b""
        version = self._marker_version = connection.upstream.metadata_version()
        return marker(client_id, version, connection.expect(self, held_bytes=self._held_bytes, decides=True))

    def responded(self, response: bytes, connection: Connection) -> bytes:
        """See the base class; the response is the marker's."""
        version = self._marker_version
        is_error = k03_metadata.is_error(at_body(response, api_keys.METADATA, version), version)
        # A broker that answers without a login, although one is required, is not trusted.
        if is_error or not connection.login.authenticated:
            connection.emit(UnauthenticatedTelemetry(self._header))
            return telemetry_error(self._header, ErrorCode.ILLEGAL_SASL_STATE)
        if connection.broker.wants_cluster:
            body = at_body(response, api_keys.METADATA, version)
            connection.broker.record_cluster(k03_metadata.decode_cluster(body, version))
        connection.marker_answered()
        self._throttle_time_ms = k03_metadata.decode_throttle_time_ms(
            at_body(response, api_keys.METADATA, version), version
        )
        self._call(connection)
        return b""

    def answered(self, answer: bytes) -> bytes:
        """See the base class; the broker's throttle time goes on to the client (KIP-124)."""
        return with_throttle_time(answer, self._throttle_time_ms) if self._throttle_time_ms else answer

    def _call(self, connection: Connection) -> None:
        token = connection.open_call(self, self._held_bytes)
        connection.emit(TelemetryCall(token, self._header, self._request))


def _begin(request: Request, connection: Connection) -> bytes:
    cut_beyond = connection.max_push_bytes if request.cut else None
    body = decode_telemetry(request.header, request.reader, cut_beyond=cut_beyond)
    return TelemetryExchange(request.header, body, len(request.data)).begin(request.client_id, connection)


KIND: Final = Kind(
    keys=frozenset({api_keys.GET_TELEMETRY_SUBSCRIPTIONS, api_keys.PUSH_TELEMETRY}),
    begin=_begin,
    answered_here=True,
)
