"""Names of API keys and error codes."""

from __future__ import annotations

import pytest

from receiver.wire import api_keys
from receiver.wire.api_keys import api_name
from receiver.wire.error_codes import ErrorCode, error_name
from receiver.wire.k18_api_versions import decode_response
from receiver.wire.primitives import Reader
from tests.unit.wire.corpus import load


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (api_keys.PRODUCE, "Produce"),
        (api_keys.METADATA, "Metadata"),
        (api_keys.CONTROLLED_SHUTDOWN, "ControlledShutdown"),
        (api_keys.SASL_HANDSHAKE, "SaslHandshake"),
        (api_keys.API_VERSIONS, "ApiVersions"),
        (api_keys.SASL_AUTHENTICATE, "SaslAuthenticate"),
        (44, "IncrementalAlterConfigs"),
        (api_keys.GET_TELEMETRY_SUBSCRIPTIONS, "GetTelemetrySubscriptions"),
        (api_keys.PUSH_TELEMETRY, "PushTelemetry"),
        (74, "ListConfigResources"),
        (123, "unknown(123)"),
        (-1, "unknown(-1)"),
    ],
)
def test_api_name(key: int, name: str) -> None:
    assert api_name(key) == name


def test_all_api_keys_of_a_broker_have_names() -> None:
    frame = next(f for f in load() if f.key == 18 and f.version == 5 and not f.is_request)
    listed = decode_response(Reader(frame.data, 4), 5).api_keys
    names = [api_name(entry.api_key) for entry in listed]
    assert not [name for name in names if name.startswith("unknown")]
    assert len(set(names)) == len(listed) == 79


def test_error_name() -> None:
    assert error_name(0) == "NONE"
    assert error_name(118) == "TELEMETRY_TOO_LARGE"
    assert error_name(-1) == "UNKNOWN_SERVER_ERROR"
    assert error_name(9999) == "unknown(9999)"
    assert all(error_name(code) == code.name for code in ErrorCode)
