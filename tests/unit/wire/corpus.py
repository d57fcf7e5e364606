"""The captured frames, and the codec of each message, for tests that run over all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from receiver.wire import (
    k17_sasl_handshake,
    k18_api_versions,
    k36_sasl_authenticate,
    k71_get_telemetry_subscriptions,
    k72_push_telemetry,
)
from receiver.wire.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    response_header_version,
)
from receiver.wire.primitives import Reader

FRAMES = Path(__file__).parents[2] / "data" / "frames"
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    file: str
    label: str
    is_request: bool
    key: int
    version: int
    correlation_id: int
    client_id: str
    length: int
    decoded: dict[str, Any] | None

    @property
    def data(self) -> bytes:
        return (FRAMES / self.file).read_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """One direction of one message."""

    decode: Callable[[Reader, int], Any]
    encode: Callable[[Any, int], bytes]


REQUESTS = {
    17: Codec(decode=k17_sasl_handshake.decode_request, encode=k17_sasl_handshake.encode_request),
    18: Codec(decode=k18_api_versions.decode_request, encode=k18_api_versions.encode_request),
    36: Codec(decode=k36_sasl_authenticate.decode_request, encode=k36_sasl_authenticate.encode_request),
    71: Codec(
        decode=k71_get_telemetry_subscriptions.decode_request,
        encode=k71_get_telemetry_subscriptions.encode_request,
    ),
    72: Codec(decode=k72_push_telemetry.decode_request, encode=k72_push_telemetry.encode_request),
}
RESPONSES = {
    17: Codec(decode=k17_sasl_handshake.decode_response, encode=k17_sasl_handshake.encode_response),
    18: Codec(decode=k18_api_versions.decode_response, encode=k18_api_versions.encode_response),
    36: Codec(decode=k36_sasl_authenticate.decode_response, encode=k36_sasl_authenticate.encode_response),
    71: Codec(
        decode=k71_get_telemetry_subscriptions.decode_response,
        encode=k71_get_telemetry_subscriptions.encode_response,
    ),
    72: Codec(decode=k72_push_telemetry.decode_response, encode=k72_push_telemetry.encode_response),
}

#: Every version that is read and written, by key.
VERSIONS: dict[int, range] = {
    17: k17_sasl_handshake.SUPPORTED_VERSIONS,
    18: k18_api_versions.SUPPORTED_VERSIONS,
    36: k36_sasl_authenticate.SUPPORTED_VERSIONS,
    71: k71_get_telemetry_subscriptions.SUPPORTED_VERSIONS,
    72: k72_push_telemetry.SUPPORTED_VERSIONS,
}


def load() -> list[Captured]:
    return [
        Captured(
            file=entry["file"],
            label=entry["label"],
            is_request=entry["dir"] == "req",
            key=entry["key"],
            version=entry["version"],
            correlation_id=entry["corr"],
            client_id=entry["client_id"],
            length=entry["len"],
            decoded=entry["decoded"],
        )
        for entry in json.loads((FRAMES / "index.json").read_text())
    ]


def decode_header(reader: Reader, frame: Captured) -> Any:
    if frame.is_request:
        return decode_request_header(reader)
    return decode_response_header(reader, response_header_version(frame.key, frame.version))


def encode_header(header: Any, frame: Captured) -> bytes:
    if frame.is_request:
        return encode_request_header(header)
    return encode_response_header(header, response_header_version(frame.key, frame.version))


def codec(frame: Captured) -> Codec:
    return (REQUESTS if frame.is_request else RESPONSES)[frame.key]
