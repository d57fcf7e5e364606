"""Maps a destination's answer to success, partial success, retry or failure.

Source: OTLP specification, "Failures" of OTLP/gRPC and OTLP/HTTP.
"""

from __future__ import annotations

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from receiver.plugin import BatchRefusedError, ExportError, ExportResult, PermanentError, RetryableError

__all__ = ["grpc_error", "http_error", "result", "status_message"]

#: OTLP/gRPC's retryable codes. RESOURCE_EXHAUSTED is retryable only with RetryInfo.
_GRPC_RETRYABLE = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
#: Codes about the request's content or size, so that a part of it may succeed. RESOURCE_EXHAUSTED
#: is gRPC's answer to a message over the receiver's limit. INTERNAL is grpc-go's (so the
#: Collector's) answer to a message that it cannot unmarshal. INVALID_ARGUMENT is the OTLP
#: specification's example of bad data.
_GRPC_BATCH_REFUSED = frozenset(
    {
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.INVALID_ARGUMENT,
    }
)
#: OTLP/HTTP's retryable status codes.
_HTTP_RETRYABLE = frozenset({429, 502, 503, 504})
#: Likewise: 400 is OTLP/HTTP's answer to bad data, 413 HTTP's to a body that is too large.
_HTTP_BATCH_REFUSED = frozenset({400, 413})

_RETRY_INFO = "/google.rpc.RetryInfo"


def result(answer: bytes) -> ExportResult | None:
    """Read the ``ExportMetricsServiceResponse`` of a successful export.

    Returns:
        None for a full success or an unreadable answer, because its status says success. Else what
        the destination rejected or warned of.
    """
    try:
        partial = ExportMetricsServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return None
    if not partial.rejected_data_points and not partial.error_message:
        return None
    return ExportResult(rejected_points=partial.rejected_data_points, message=partial.error_message)


def grpc_error(code: grpc.StatusCode, reason: str, details: bytes | None) -> ExportError:
    """Map a failed gRPC export to an error.

    ``details`` is the ``google.rpc.Status`` of ``grpc-status-details-bin``.
    """
    present, delay_s = _retry_info(details or b"")
    if code in _GRPC_RETRYABLE or (code is grpc.StatusCode.RESOURCE_EXHAUSTED and present):
        return RetryableError(reason, retry_after_s=delay_s)
    return BatchRefusedError(reason) if code in _GRPC_BATCH_REFUSED else PermanentError(reason)


def http_error(status: int, reason: str, retry_after_s: float | None) -> ExportError:
    """Map a failed HTTP export to an error."""
    if status in _HTTP_RETRYABLE:
        return RetryableError(reason, retry_after_s=retry_after_s)
    return BatchRefusedError(reason) if status in _HTTP_BATCH_REFUSED else PermanentError(reason)


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
