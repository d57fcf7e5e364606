"""Values of every message, for each version only what it carries."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from receiver.wire.headers import RequestHeader, ResponseHeader
from receiver.wire.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from receiver.wire.k18_api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from receiver.wire.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from receiver.wire.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from receiver.wire.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from receiver.wire.uuid import ZERO_UUID, Uuid
from receiver.wire.writer import TaggedFields

int8s = st.integers(-(2**7), 2**7 - 1)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=40)
blobs = st.binary(max_size=300)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)

#: Tagged fields that no schema names (those that name any stop far below 100), in ascending order.
unknown_tags: st.SearchStrategy[TaggedFields] = st.dictionaries(
    st.integers(100, 2**32 - 1), st.binary(max_size=200), max_size=3
).map(lambda fields: tuple(sorted(fields.items())))


def tags(*, flexible: bool, unknown: bool) -> st.SearchStrategy[TaggedFields]:
    return unknown_tags if flexible and unknown else st.just(())


def tuples(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=6).map(tuple)


def request_headers(version: int) -> st.SearchStrategy[RequestHeader]:
    return st.builds(
        RequestHeader,
        api_key=int16s,
        api_version=int16s,
        correlation_id=int32s,
        client_id=st.none() | texts if version >= 1 else st.none(),
        client_instance_id=uuids if version >= 3 else st.none(),
        tagged_fields=tags(flexible=version >= 2, unknown=True),
    )


def response_headers(version: int) -> st.SearchStrategy[ResponseHeader]:
    return st.builds(
        ResponseHeader,
        correlation_id=int32s,
        tagged_fields=tags(flexible=version >= 1, unknown=True),
    )


def requests(key: int, version: int, *, unknown: bool = True) -> st.SearchStrategy[Any]:
    """Requests; with ``unknown`` also unknown fields and forbidden values that are accepted."""
    if key == 17:
        return st.builds(SaslHandshakeRequest, mechanism=texts)
    if key == 18:
        return st.builds(
            ApiVersionsRequest,
            client_software_name=texts if version >= 3 else st.just(""),
            client_software_version=texts if version >= 3 else st.just(""),
            cluster_id=st.none() | texts if version >= 5 else st.none(),
            node_id=int32s if version >= 5 else st.just(-1),
            tagged_fields=tags(flexible=version >= 3, unknown=unknown),
        )
    if key == 36:
        return st.builds(
            SaslAuthenticateRequest,
            auth_bytes=blobs,
            tagged_fields=tags(flexible=version >= 2, unknown=unknown),
        )
    if key == 71:
        return st.builds(
            GetTelemetrySubscriptionsRequest,
            client_instance_id=uuids if version == 0 else st.just(ZERO_UUID),
            tagged_fields=tags(flexible=True, unknown=unknown),
        )
    return st.builds(
        PushTelemetryRequest,
        client_instance_id=uuids if version == 0 else st.just(ZERO_UUID),
        subscription_id=int32s,
        terminating=st.booleans(),
        compression_type=int8s,
        metrics=blobs | st.none() if unknown else blobs,
        tagged_fields=tags(flexible=True, unknown=unknown),
    )


def api_versions_responses(
    version: int, *, unknown: bool = True, error_codes: st.SearchStrategy[int] = int16s
) -> st.SearchStrategy[ApiVersionsResponse]:
    entries = st.builds(
        ApiVersion,
        api_key=st.integers(0, 90) | int16s,
        min_version=int16s,
        max_version=int16s,
        tagged_fields=tags(flexible=version >= 3, unknown=unknown),
    )
    return st.builds(
        ApiVersionsResponse,
        # UNSUPPORTED_VERSION has a body of version 0 in every version
        error_code=error_codes.filter(lambda code: code != 35 or version == 0),
        api_keys=tuples(entries),
        throttle_time_ms=int32s if version >= 1 else st.just(0),
        tagged_fields=tags(flexible=version >= 3, unknown=unknown),
    )


def responses(
    key: int,
    version: int,
    *,
    unknown: bool = True,
    error_codes: st.SearchStrategy[int] = int16s,
    lifetimes: st.SearchStrategy[int] = int64s,
) -> st.SearchStrategy[Any]:
    """Responses; with ``unknown`` also what no schema names."""
    if key == 17:
        return st.builds(SaslHandshakeResponse, error_code=error_codes, mechanisms=tuples(texts))
    if key == 18:
        return api_versions_responses(version, unknown=unknown, error_codes=error_codes)
    if key == 36:
        return st.builds(
            SaslAuthenticateResponse,
            error_code=error_codes,
            error_message=st.none() | texts,
            auth_bytes=blobs,
            session_lifetime_ms=lifetimes if version >= 1 else st.just(0),
            tagged_fields=tags(flexible=version >= 2, unknown=unknown),
        )
    if key == 71:
        return st.builds(
            GetTelemetrySubscriptionsResponse,
            throttle_time_ms=int32s,
            error_code=error_codes,
            client_instance_id=uuids if version == 0 else st.just(ZERO_UUID),
            subscription_id=int32s,
            accepted_compression_types=tuples(int8s),
            push_interval_ms=int32s,
            telemetry_max_bytes=int32s,
            delta_temporality=st.booleans(),
            requested_metrics=tuples(texts),
            tagged_fields=tags(flexible=True, unknown=unknown),
        )
    return st.builds(
        PushTelemetryResponse,
        throttle_time_ms=int32s,
        error_code=error_codes,
        tagged_fields=tags(flexible=True, unknown=unknown),
    )
