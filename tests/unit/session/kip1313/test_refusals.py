"""Responses that consist of an error code and defaults."""

from __future__ import annotations

import pytest

from receiver.session.exchanges import offset_delete
from receiver.session.exchanges.refusal import error_body
from receiver.session.exchanges.refused_entries import has_entries
from receiver.wire import api_keys, k18_api_versions
from receiver.wire import k71_get_telemetry_subscriptions as k71
from receiver.wire import k72_push_telemetry as k72
from receiver.wire.error_codes import ErrorCode
from receiver.wire.header_versions import FIRST_WITH_HEADER_V3
from receiver.wire.primitives import Reader


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("error_code", [ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_bodies_equal_those_of_the_codec(version: int, error_code: ErrorCode) -> None:
    subscriptions = k71.GetTelemetrySubscriptionsResponse(error_code=error_code)
    assert error_body(71, version, error_code) == k71.encode_response(subscriptions, version)
    pushed = k72.PushTelemetryResponse(error_code=error_code)
    assert error_body(72, version, error_code) == k72.encode_response(pushed, version)


def test_api_versions_has_the_body_of_the_version_before() -> None:
    versions = k18_api_versions.ApiVersionsResponse(error_code=42)
    assert error_body(api_keys.API_VERSIONS, 6, 42) == k18_api_versions.encode_response(versions, 5)


def test_offset_delete_has_a_body_in_both_versions() -> None:
    before = error_body(api_keys.OFFSET_DELETE, 0, 42)
    assert before is not None
    assert error_body(api_keys.OFFSET_DELETE, 1, 42) == offset_delete.response_to_v1(Reader(before))


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (api_keys.PRODUCE, FIRST_WITH_HEADER_V3[api_keys.PRODUCE]),  # has error codes for partitions alone
        (api_keys.METADATA, FIRST_WITH_HEADER_V3[api_keys.METADATA] - 2),  # has error codes for topics alone
        (9, 8),  # OffsetFetch has them for groups alone, unlike version 7
        (api_keys.SHARE_FETCH, 0),  # gone
        (api_keys.METADATA, FIRST_WITH_HEADER_V3[api_keys.METADATA] + 1),
        (api_keys.SASL_HANDSHAKE, 1),
        (9999, 0),
    ],
)
def test_other_versions_and_rpcs_have_no_body(key: int, version: int) -> None:
    assert error_body(key, version, 42) is None


def test_every_rpc_but_sasl_handshake_can_be_refused_with_an_answer() -> None:
    """With one error code, or with one for each entry of the request."""
    by_entries = set()
    for key, version in FIRST_WITH_HEADER_V3.items():
        for asked in (version - 1, version):
            if error_body(key, asked, 42) is None:
                assert has_entries(key, asked), (key, asked)
                by_entries.add(key)
    assert api_keys.SASL_HANDSHAKE not in FIRST_WITH_HEADER_V3
    assert len(by_entries) > 20


def test_kip_1313_changes_two_bodies() -> None:
    changed = {
        key
        for key, version in FIRST_WITH_HEADER_V3.items()
        if error_body(key, version, 42) != error_body(key, version - 1, 42)
    }
    assert changed == {api_keys.OFFSET_DELETE, api_keys.GET_TELEMETRY_SUBSCRIPTIONS}
