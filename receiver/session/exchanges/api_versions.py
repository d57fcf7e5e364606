r"""Decides which ApiVersions requests to forward, and edits the broker's responses.

======================================  ======================================  ===============
Request                                 Answer                                  Connection
======================================  ======================================  ===============
Unknown version                         UNSUPPORTED_VERSION in a v0 body, with  stays open, the
                                        the range of ApiVersions (KIP-35,       client retries
                                        KIP-511)
Software name or version that does not  INVALID_REQUEST                         closed
match ``[\.\-a-zA-Z0-9]+`` (since v3)                                           (KIP-511)
Only one of ClusterId and NodeId (v5)   INVALID_REQUEST (KIP-1242)              stays open
ClusterId or NodeId of another broker   REBOOTSTRAP_REQUIRED (KIP-1242)         stays open
(v5), if the broker lacks v5 and has
shown its own
All others                              The broker's, with the receiver's       stays open
                                        versions, and without telemetry while
                                        no plugin takes it (KIP-714)
======================================  ======================================  ===============

A broker that has v5 checks ClusterId and NodeId itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from receiver.brokers.listener_broker import ListenerBroker
from receiver.brokers.upstream import Upstream
from receiver.session.effects import ApiVersionsAnswered, ApiVersionsAsked
from receiver.session.exchange import Connection, Exchange, Kind, Request, SessionEnd, held_memory
from receiver.session.messages import (
    answer_frame,
    api_versions_request,
    unknown_version_request,
    with_correlation_id,
)
from receiver.telemetry.identity import MAX_TEXT_CHARS
from receiver.wire import (
    api_keys,
    k18_api_versions,
    k71_get_telemetry_subscriptions,
    k72_push_telemetry,
    k74_list_config_resources,
    named_addresses,
)
from receiver.wire.error_codes import ErrorCode
from receiver.wire.frame_rewriter import frame
from receiver.wire.headers import RequestHeader
from receiver.wire.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from receiver.wire.primitives import Reader

_CORRELATION_ID_BYTES: Final = 4

_FIRST_WITH_CLIENT_INFORMATION: Final = 3
_FIRST_WITH_NODE: Final = 5
_FIRST_FLEXIBLE: Final = 3


#: The RPCs of client telemetry.
TELEMETRY_KEYS: Final = frozenset({api_keys.GET_TELEMETRY_SUBSCRIPTIONS, api_keys.PUSH_TELEMETRY})


def _ends(versions: range) -> tuple[int, int]:
    return versions[0], versions[-1]


#: Lowest and highest version, by API key, of the requests that the receiver speaks for any broker.
#: Every ApiVersions response lists them, unless KIP-1313's version of ApiVersions is offered too.
OFFERED: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {
        api_keys.API_VERSIONS: _ends(k18_api_versions.SUPPORTED_VERSIONS),
        api_keys.GET_TELEMETRY_SUBSCRIPTIONS: _ends(k71_get_telemetry_subscriptions.SUPPORTED_VERSIONS),
        api_keys.PUSH_TELEMETRY: _ends(k72_push_telemetry.SUPPORTED_VERSIONS),
    }
)


#: What clients are offered while no plugin takes their metrics (KIP-714, "ApiVersions").
_WITHOUT_TELEMETRY: Final = {key: span for key, span in OFFERED.items() if key not in TELEMETRY_KEYS}


#: What clients are offered besides, where the receiver answers for client metrics resources. Kafka
#: 3.7 has the RPC since it keeps them. Version 1 lists other types too, which the broker can't.
_RESOURCES: Final = {
    api_keys.LIST_CONFIG_RESOURCES: (k74_list_config_resources.LIST_ONLY, k74_list_config_resources.LIST_ONLY)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forward:
    """Decision to forward a request to the broker in this version."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refuse:
    """Decision to answer a request here, and perhaps to close the connection."""

    error_code: ErrorCode
    body: bytes
    close: bool = False


def _decide(
    request: ApiVersionsRequest | None, version: int, *, broker: ListenerBroker, upstream: Upstream
) -> _Forward | _Refuse:
    """Decide by the table above about a request; None: its version is unknown."""
    if request is None:
        _, highest = upstream.translated.get(api_keys.API_VERSIONS, OFFERED[api_keys.API_VERSIONS])
        return _Refuse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            body=k18_api_versions.unsupported_version_body(range(highest + 1)),
        )
    if version >= _FIRST_WITH_CLIENT_INFORMATION and not k18_api_versions.is_valid_client_information(
        request.client_software_name, request.client_software_version
    ):
        return _refuse(ErrorCode.INVALID_REQUEST, version, close=True)
    forward = upstream.api_versions_version(version)
    if version >= _FIRST_WITH_NODE:
        cluster_id, node_id = request.cluster_id, request.node_id
        if (cluster_id is not None) != (node_id != -1):
            return _refuse(ErrorCode.INVALID_REQUEST, version)
        if cluster_id is not None and forward < _FIRST_WITH_NODE and broker.is_misrouted(cluster_id, node_id):
            return _refuse(ErrorCode.REBOOTSTRAP_REQUIRED, version)
    return _Forward(version=forward)


def _refuse(error_code: ErrorCode, version: int, *, close: bool = False) -> _Refuse:
    body = k18_api_versions.encode_response(ApiVersionsResponse(error_code=error_code), version)
    return _Refuse(error_code=error_code, body=body, close=close)


class _Refused(Exchange):
    """A request that the receiver answers.

    The broker gets one in a version that it lacks.
    """

    __slots__ = ("_asked", "_header", "_refusal")

    def __init__(self, header: RequestHeader, refusal: _Refuse, asked: ApiVersionsAsked) -> None:
        self._header = header
        self._refusal = refusal
        self._asked = asked

    def responded(self, response: bytes, connection: Connection) -> bytes:
        if self._refusal.close:
            connection.end(SessionEnd.INVALID_REQUEST)
        connection.emit(ApiVersionsAnswered(self._header, self._refusal.error_code, self._asked))
        return answer_frame(self._header, self._refusal.body)


class _Forwarded(Exchange):
    """A request that the broker answers, perhaps in a lower version."""

    __slots__ = ("_asked", "_forwarded", "_header", "_software")

    def __init__(
        self, header: RequestHeader, request: ApiVersionsRequest, forwarded: int, asked: ApiVersionsAsked
    ) -> None:
        self._asked = asked
        self._header = header
        # Nothing else of the request, whose texts and tagged fields may be long.
        name, version = request.client_software_name, request.client_software_version
        self._software = name[:MAX_TEXT_CHARS], version[:MAX_TEXT_CHARS]
        self._forwarded = forwarded

    def responded(self, response: bytes, connection: Connection) -> bytes:
        """See the base class; the response is edited."""
        upstream, forwarded = connection.upstream, self._forwarded
        body = response[_CORRELATION_ID_BYTES:]
        error_code = k18_api_versions.read_error_code(body)
        if error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The broker was rolled back. The client falls back because of this response (KIP-511),
            # and its next request is forwarded in a version that the broker has.
            known = k18_api_versions.read_ranges(body, 0, (api_keys.API_VERSIONS,))
            upstream.learn(known, all_keys=False)
        else:
            if error_code == ErrorCode.NONE:
                upstream.learn(k18_api_versions.read_ranges(body, forwarded, upstream.learned_keys))
                self._learn_software(connection)
            # KIP-1313's version has the body of the one before.
            requested = min(self._header.api_version, k18_api_versions.SUPPORTED_VERSIONS[-1])
            body = _edited(body, upstream, requested=requested, forwarded=forwarded)
        connection.emit(ApiVersionsAnswered(self._header, error_code, self._asked))
        return answer_frame(self._header, body)

    def _learn_software(self, connection: Connection) -> None:
        # Only after the broker accepted it, because Kafka 4.4 refuses names that KIP-511 allows.
        name, version = self._software
        if name:
            connection.identify(
                replace(connection.identity, client_software_name=name, client_software_version=version)
            )


def _begin(request: Request, connection: Connection) -> bytes:
    header, version = request.header, request.header.api_version
    body = None
    if version in k18_api_versions.SUPPORTED_VERSIONS:
        body = k18_api_versions.decode_request(request.reader, version)
    decision = _decide(body, version, broker=connection.broker, upstream=connection.upstream)
    asked, sent = ApiVersionsAsked(), request.translated or header
    held_bytes = held_memory(sent)
    connection.emit(asked)
    if isinstance(decision, _Refuse):
        if decision.close:
            connection.end_after_answer()
        correlation_id = connection.expect(_Refused(sent, decision, asked), held_bytes=held_bytes)
        return frame(unknown_version_request(header, correlation_id))
    known, forwarded = body or ApiVersionsRequest(), decision.version
    correlation_id = connection.expect(_Forwarded(sent, known, forwarded, asked), held_bytes=held_bytes)
    if forwarded == version:
        return frame(with_correlation_id(correlation_id, request.data))
    return frame(api_versions_request(header, correlation_id, forwarded, known))


KIND: Final = Kind(keys=frozenset({api_keys.API_VERSIONS}), begin=_begin, answered_here=True)


def _edited(body: bytes, upstream: Upstream, *, requested: int, forwarded: int) -> bytes:
    """Return a broker's response body with the versions that clients are offered here.

    Args:
        body: The body. An error other than UNSUPPORTED_VERSION is kept.
        requested: The version of the client's request.
        forwarded: The version of the forwarded request, at most ``requested``.

    Raises:
        WireError: The body is malformed.
    """
    if upstream.rewrites:
        body = k18_api_versions.cap_api_keys(body, forwarded, named_addresses.OFFERED)
    offered = OFFERED if upstream.offers_telemetry else _WITHOUT_TELEMETRY
    ranges = {**offered, **upstream.translated, **upstream.capped}
    if upstream.answers_for_resources:
        ranges |= _RESOURCES
    body = _answer_body(body, ranges, requested=requested, forwarded=forwarded)
    if not upstream.offers_telemetry:
        body = k18_api_versions.without_api_keys(body, requested, TELEMETRY_KEYS)
    return body


def _answer_body(
    body: bytes, ranges: Mapping[int, tuple[int, int]], *, requested: int, forwarded: int
) -> bytes:
    """Put version ranges into a broker's response, in the client's version.

    Args:
        body: The body of the broker's response. An error other than UNSUPPORTED_VERSION is kept.
        ranges: The lowest and highest version to list, by API key.
        requested: The version of the client's request.
        forwarded: The version of the forwarded request, at most ``requested``.

    Raises:
        WireError: The broker's body is malformed.
    """
    spliced = k18_api_versions.splice_api_keys(body, forwarded, ranges)
    if _layout(requested) == _layout(forwarded):
        return spliced
    response = k18_api_versions.decode_response(Reader(spliced), forwarded)
    return k18_api_versions.encode_response(response, requested)


def _layout(version: int) -> int:
    """Return the first version whose response body has the same layout."""
    return _FIRST_FLEXIBLE if version >= _FIRST_FLEXIBLE else min(version, 1)
