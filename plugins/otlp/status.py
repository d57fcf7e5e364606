"""Maps a destination's answer to success, partial success, retry or failure.

Source: OTLP specification, "Failures" of OTLP/gRPC and OTLP/HTTP.
"""

from __future__ import annotations

import json
from typing import Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from plugins._shared.answers import REFUSED_GRPC_CODES, UNCLEAR_GRPC_CODES
from receiver.plugin import BatchRefusedError, ExportError, ExportResult, RetryableError, UnclearError

_RETRY_INFO: Final = "/google.rpc.RetryInfo"
#: Bound on the characters of a destination's message.
_MAX_MESSAGE: Final = 1_000
_PARTIAL_SUCCESS: Final = ("partialSuccess", "partial_success")


def result(answer: bytes) -> ExportResult | None:
    """Read the ``ExportMetricsServiceResponse`` of a successful export.

    None for a full success; else what the destination rejected or warned of.

    Raises:
        ValueError: It is no such message.
    """
    try:
        return _partial(ExportMetricsServiceResponse.FromString(answer))
    except DecodeError:
        raise ValueError("no ExportMetricsServiceResponse") from None


def json_result(answer: bytes) -> ExportResult | None:
    """Read the same in OTLP's JSON encoding; see :func:`result`.

    Fields that are not known are ignored, as the specification asks. But an object without any
    known field, such as ``{"error": "log in"}``, is no such message.
    """
    try:
        fields = json.loads(answer)
        if not isinstance(fields, dict) or (fields and not any(name in fields for name in _PARTIAL_SUCCESS)):
            raise ValueError("no ExportMetricsServiceResponse")
        return _partial(ParseDict(fields, ExportMetricsServiceResponse(), ignore_unknown_fields=True))
    except (ValueError, ParseError, RecursionError):
        raise ValueError("no ExportMetricsServiceResponse") from None


def _partial(response: ExportMetricsServiceResponse) -> ExportResult | None:
    partial = response.partial_success
    if not partial.rejected_data_points and not partial.error_message:
        return None
    message = partial.error_message[:_MAX_MESSAGE]
    return ExportResult(rejected_points=partial.rejected_data_points, message=message)


def grpc_error(code: grpc.StatusCode, reason: str, details: bytes | None) -> ExportError:
    """Map a failed gRPC export to an error.

    ``details`` is the ``google.rpc.Status`` of ``grpc-status-details-bin``.
    """
    present, delay_s = _retry_info(details or b"")
    if code.name in REFUSED_GRPC_CODES:
        return BatchRefusedError(reason)
    if code.name in UNCLEAR_GRPC_CODES and not present:
        return UnclearError(reason)
    return RetryableError(reason, retry_after_s=delay_s)


def status_message(status: bytes) -> str:
    """Return the message of a ``google.rpc.Status``, OTLP/HTTP's error body."""
    for number, value in _fields(status):
        if number == 2:
            return value.decode(errors="replace")
    return ""


def _retry_info(status: bytes) -> tuple[bool, float | None]:
    for number, value in _fields(status):
        if number != 3:
            continue
        try:
            detail = AnyMessage.FromString(value)
            if detail.type_url.endswith(_RETRY_INFO):
                delays = [Duration.FromString(inner) for field, inner in _fields(detail.value) if field == 1]
                seconds = delays[-1].seconds + delays[-1].nanos / 1e9 if delays else 0.0
                return True, seconds if seconds > 0 else None
        except DecodeError:
            continue
    return False, None


def _fields(message: bytes) -> list[tuple[int, bytes]]:
    """Return a message's length-delimited fields.

    The generated type would be a dependency of its own.
    """
    try:
        fields = UnknownFieldSet(Empty.FromString(message))
    except DecodeError:
        return []
    all_fields = (fields[index] for index in range(len(fields)))
    return [(field.field_number, field.data) for field in all_fields if field.wire_type == 2]
