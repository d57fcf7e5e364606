r"""The rules for an ApiVersions request: pass it on, or answer it here.

===========================================  ======================================  ==================
the request                                  the answer                              then
===========================================  ======================================  ==================
a version that we do not know                UNSUPPORTED_VERSION in a v0 body, with  goes on (KIP-511:
                                             ApiVersions' own range (KIP-35, 511)    it asks again)
a software name or version that is not       INVALID_REQUEST                         closed (KIP-511)
``[\.\-a-zA-Z0-9]+`` (v3 and later)
only one of ClusterId and NodeId (v5)        INVALID_REQUEST (KIP-1242)              goes on
ClusterId or NodeId of another broker (v5),  REBOOTSTRAP_REQUIRED (KIP-1242)         goes on
and the broker does not know v5
anything else                                the broker's own, with our versions     goes on
===========================================  ======================================  ==================

A broker that knows v5 checks ClusterId and NodeId itself, and knows best who it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from receiver.session.events import SessionEvents
from receiver.session.messages import (
    api_versions_request,
    response_header,
    under,
    unknown_version_request,
)
from receiver.session.pending import Answering
from receiver.session.upstream import Upstream
from receiver.telemetry.connection import MAX_TEXT_CHARS, Broker, Connection
from receiver.wire import api_keys, k18_api_versions, k71_get_telemetry_subscriptions, k72_push_telemetry
from receiver.wire.error_codes import ErrorCode
from receiver.wire.framing import frame
from receiver.wire.headers import RequestHeader
from receiver.wire.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from receiver.wire.primitives import Reader

__all__ = ["OFFERED", "Answer", "ApiVersionsExchange", "ApiVersionsRequests", "Forward", "decide"]

_CORRELATION_ID_BYTES: Final = 4

_FIRST_WITH_CLIENT_INFORMATION: Final = 3
_FIRST_WITH_NODE: Final = 5
_FIRST_FLEXIBLE: Final = 3


def _ends(versions: range) -> tuple[int, int]:
    return versions[0], versions[-1]


#: What we speak ourselves, whatever the broker speaks: these ranges stand in every answer to ApiVersions, but
#: for that of ApiVersions itself where KIP-1313's version of it is translated.
OFFERED: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {
        api_keys.API_VERSIONS: _ends(k18_api_versions.SUPPORTED_VERSIONS),
        api_keys.GET_TELEMETRY_SUBSCRIPTIONS: _ends(k71_get_telemetry_subscriptions.SUPPORTED_VERSIONS),
        api_keys.PUSH_TELEMETRY: _ends(k72_push_telemetry.SUPPORTED_VERSIONS),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Pass the request on to the broker, in this version."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer the request here.

    Attributes:
        error_code: The error.
        body: The response's body, in the version that the client can read.
        close: Whether the connection is closed after the answer.
    """

    error_code: ErrorCode
    body: bytes
    close: bool = False


def decide(
    request: ApiVersionsRequest | None, version: int, *, broker: Broker, upstream: Upstream
) -> Forward | Answer:
    """Say what becomes of an ApiVersions request: the table above.

    Args:
        request: The decoded body; None for a version that we cannot decode.
        version: The version the client asked in.
        broker: Who the broker is.
        upstream: What the broker speaks.
    """
    if request is None:
        _, greatest = upstream.translated.get(api_keys.API_VERSIONS, OFFERED[api_keys.API_VERSIONS])
        return Answer(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            body=k18_api_versions.unsupported_version_body(range(greatest + 1)),
        )
    if version >= _FIRST_WITH_CLIENT_INFORMATION and not k18_api_versions.is_valid_client_information(
        request.client_software_name, request.client_software_version
    ):
        return _refuse(ErrorCode.INVALID_REQUEST, version, close=True)
    forward = upstream.api_versions_version(version)
    if version >= _FIRST_WITH_NODE:
        knows_cluster, knows_node = request.cluster_id is not None, request.node_id != -1
        if knows_cluster != knows_node:
            return _refuse(ErrorCode.INVALID_REQUEST, version)
        if knows_node and forward < _FIRST_WITH_NODE and _is_misrouted(request, broker):
            return _refuse(ErrorCode.REBOOTSTRAP_REQUIRED, version)
    return Forward(version=forward)


def _is_misrouted(request: ApiVersionsRequest, broker: Broker) -> bool:
    # A cluster id that nobody told us yet cannot be wrong; the node id is always configured.
    return request.node_id != broker.id or (
        broker.cluster_id is not None and request.cluster_id != broker.cluster_id
    )


def _refuse(error_code: ErrorCode, version: int, *, close: bool = False) -> Answer:
    body = k18_api_versions.encode_response(ApiVersionsResponse(error_code=error_code), version)
    return Answer(error_code=error_code, body=body, close=close)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsExchange:
    """What the broker gets in place of a request, and what the client gets in place of its answer.

    Attributes:
        request: Writes what the broker gets, without its length, under a correlation id of ours.
        answer: Makes the answer's frame.
        closes: Whether the connection is closed after the answer.
    """

    request: Callable[[int], bytes]
    answer: Answering
    closes: bool = False


class ApiVersionsRequests:
    """The ApiVersions requests of one connection.

    Args:
        connection: Its entry in the registry; the client's software is learned here.
        broker: Who the broker is.
        upstream: What the broker speaks; kept up to date here.
        events: Told of every answer.
    """

    __slots__ = ("_broker", "_connection", "_events", "_upstream")

    def __init__(
        self, *, connection: Connection, broker: Broker, upstream: Upstream, events: SessionEvents
    ) -> None:
        self._connection = connection
        self._broker = broker
        self._upstream = upstream
        self._events = events

    def exchange(self, header: RequestHeader, reader: Reader, request: bytes) -> ApiVersionsExchange:
        """Say what becomes of a request.

        Args:
            header: Its header.
            reader: At its body.
            request: The whole of it, without its length.

        Raises:
            WireError: The bytes are no such request.
        """
        version = header.api_version
        body = None
        if version in k18_api_versions.SUPPORTED_VERSIONS:
            body = k18_api_versions.decode_request(reader, version)
        decision = decide(body, version, broker=self._broker, upstream=self._upstream)
        if isinstance(decision, Answer):
            return ApiVersionsExchange(
                request=lambda correlation_id: unknown_version_request(header, correlation_id),
                answer=lambda _: self._refuse(header, decision),
                closes=decision.close,
            )
        asked, forwarded = body or ApiVersionsRequest(), decision.version
        return ApiVersionsExchange(
            request=lambda correlation_id: (
                under(correlation_id, request)
                if forwarded == version
                else api_versions_request(header, correlation_id, forwarded, asked)
            ),
            answer=lambda response: self._edit(header, asked, forwarded, response),
        )

    def _refuse(self, header: RequestHeader, refusal: Answer) -> bytes:
        self._events.api_versions_answered(self._connection, header, refusal.error_code)
        return frame(response_header(header), refusal.body)

    def _edit(
        self, header: RequestHeader, asked: ApiVersionsRequest, forwarded: int, response: bytes
    ) -> bytes:
        body = response[_CORRELATION_ID_BYTES:]
        error_code = k18_api_versions.read_error_code(body)
        if error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The broker was rolled back: the client falls back by this answer (KIP-511), and the next
            # request is asked in a version that the broker has.
            self._upstream.learn(k18_api_versions.read_ranges(body, 0, (api_keys.API_VERSIONS,)))
        else:
            if error_code == ErrorCode.NONE:
                self._upstream.learn(
                    k18_api_versions.read_ranges(body, forwarded, self._upstream.learned_keys)
                )
                self._learn_software(asked)
            ranges = {**OFFERED, **self._upstream.translated, **self._upstream.capped}
            body = _answer_body(body, ranges, asked=header.api_version, forwarded=forwarded)
        self._events.api_versions_answered(self._connection, header, error_code)
        return frame(response_header(header), body)

    def _learn_software(self, request: ApiVersionsRequest) -> None:
        # Not before the broker took it: Kafka 4.4 refuses names that KIP-511 allows.
        if request.client_software_name:
            self._connection.client_software_name = request.client_software_name[:MAX_TEXT_CHARS]
            self._connection.client_software_version = request.client_software_version[:MAX_TEXT_CHARS]


def _answer_body(body: bytes, ranges: Mapping[int, tuple[int, int]], *, asked: int, forwarded: int) -> bytes:
    """Turn the broker's answer into the client's: our versions in it, in the version the client asked in.

    Args:
        body: The body of the broker's response; an error other than UNSUPPORTED_VERSION stays what it is.
        ranges: Our versions: the least and the greatest by API key.
        asked: The version the client asked in.
        forwarded: The version the broker was asked in, at most ``asked``.

    Raises:
        WireError: The broker's body is malformed.
    """
    spliced = k18_api_versions.splice_api_keys(body, forwarded, ranges)
    if _layout(asked) == _layout(forwarded):
        return spliced
    response = k18_api_versions.decode_response(Reader(spliced), forwarded)
    return k18_api_versions.encode_response(response, asked)


def _layout(version: int) -> int:
    """Return the first version whose response body is laid out like this one's."""
    return _FIRST_FLEXIBLE if version >= _FIRST_FLEXIBLE else min(version, 1)
