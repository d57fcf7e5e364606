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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from receiver.brokers.listener_broker import ListenerBroker
from receiver.brokers.upstream import Upstream
from receiver.session.effects import ApiVersionsAnswered
from receiver.session.messages import (
    api_versions_request,
    response_header,
    unknown_version_request,
    with_correlation_id,
)
from receiver.session.pending import MakeAnswer
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
from receiver.wire.framing import frame
from receiver.wire.headers import RequestHeader
from receiver.wire.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from receiver.wire.primitives import Reader

__all__ = ["OFFERED", "ApiVersionsExchange", "ApiVersionsRequests"]

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
    """Decide about an ApiVersions request by the table above.

    Args:
        request: The decoded body; None for an unknown version.
        version: The version of the client's request.
        broker: What is known of the broker.
        upstream: The versions that the broker speaks.
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsExchange:
    """The request that the broker gets and the answer that the client gets.

    Attributes:
        request: Writes the request for the broker, without its length, under a given correlation
            id.
        answer: Makes the client's answer from the broker's response.
        closes: Whether the connection is closed after the answer.
    """

    request: Callable[[int], bytes]
    answer: MakeAnswer
    closes: bool = False


class ApiVersionsRequests:
    """Handles the ApiVersions requests of one connection.

    Args:
        broker: What is known of the broker.
        upstream: The versions that the broker speaks, which are kept up to date here.
        on_software: Called with the name and version of a client's software.
        emit: Receives an effect for every answer.
    """

    __slots__ = ("_broker", "_emit", "_on_software", "_upstream")

    def __init__(
        self,
        *,
        broker: ListenerBroker,
        upstream: Upstream,
        on_software: Callable[[str, str], None],
        emit: Callable[[ApiVersionsAnswered], None],
    ) -> None:
        self._broker = broker
        self._upstream = upstream
        self._on_software = on_software
        self._emit = emit

    def exchange(self, header: RequestHeader, reader: Reader, request: bytes) -> ApiVersionsExchange:
        """Decide about a request.

        Args:
            header: The request's header.
            reader: At the request's body.
            request: The whole request, without its length.

        Raises:
            WireError: The request is malformed.
        """
        version = header.api_version
        body = None
        if version in k18_api_versions.SUPPORTED_VERSIONS:
            body = k18_api_versions.decode_request(reader, version)
        decision = _decide(body, version, broker=self._broker, upstream=self._upstream)
        if isinstance(decision, _Refuse):
            return ApiVersionsExchange(
                request=lambda correlation_id: unknown_version_request(header, correlation_id),
                answer=lambda _: self._refuse(header, decision),
                closes=decision.close,
            )
        client_request, forwarded = body or ApiVersionsRequest(), decision.version
        return ApiVersionsExchange(
            request=lambda correlation_id: (
                with_correlation_id(correlation_id, request)
                if forwarded == version
                else api_versions_request(header, correlation_id, forwarded, client_request)
            ),
            answer=lambda response: self._edit(header, client_request, forwarded, response),
        )

    def _refuse(self, header: RequestHeader, refusal: _Refuse) -> bytes:
        self._emit(ApiVersionsAnswered(header, refusal.error_code))
        return frame(response_header(header), refusal.body)

    def _edit(
        self, header: RequestHeader, request: ApiVersionsRequest, forwarded: int, response: bytes
    ) -> bytes:
        body = response[_CORRELATION_ID_BYTES:]
        error_code = k18_api_versions.read_error_code(body)
        if error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The broker was rolled back. The client falls back because of this response (KIP-511),
            # and its next request is forwarded in a version that the broker has.
            known = k18_api_versions.read_ranges(body, 0, (api_keys.API_VERSIONS,))
            self._upstream.learn(known, all_keys=False)
        else:
            if error_code == ErrorCode.NONE:
                self._upstream.learn(
                    k18_api_versions.read_ranges(body, forwarded, self._upstream.learned_keys)
                )
                self._learn_software(request)
            if self._upstream.rewrites:
                body = k18_api_versions.cap_api_keys(body, forwarded, named_addresses.OFFERED)
            offered = OFFERED if self._upstream.offers_telemetry else _WITHOUT_TELEMETRY
            ranges = {**offered, **self._upstream.translated, **self._upstream.capped}
            if self._upstream.answers_for_resources:
                ranges |= _RESOURCES
            body = _answer_body(body, ranges, requested=header.api_version, forwarded=forwarded)
            if not self._upstream.offers_telemetry:
                body = k18_api_versions.without_api_keys(body, header.api_version, TELEMETRY_KEYS)
        self._emit(ApiVersionsAnswered(header, error_code))
        return frame(response_header(header), body)

    def _learn_software(self, request: ApiVersionsRequest) -> None:
        # Only after the broker accepted it, because Kafka 4.4 refuses names that KIP-511 allows.
        name, version = request.client_software_name, request.client_software_version
        if name:
            self._on_software(name[:MAX_TEXT_CHARS], version[:MAX_TEXT_CHARS])


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
