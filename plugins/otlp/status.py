"""What an OTLP destination's answer means: took it, took it in part, try again, or never.

Owns the tables of the OTLP specification ("Failures", OTLP/gRPC and OTLP/HTTP) and the reading of the few
messages that answers carry. Pure: bytes and numbers in, values and exceptions out.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from receiver.plugin import BatchRefusedError, ExportError, ExportResult, PermanentError, RetryableError

__all__ = ["grpc_error", "http_error", "http_retry_after_s", "result", "status_message"]

#: OTLP/gRPC's retryable codes; RESOURCE_EXHAUSTED is one only with RetryInfo.
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
#: What is said of the request's own content or size, so that a part of it may pass. RESOURCE_EXHAUSTED is
#: gRPC's answer to a message over the receiver's limit, INTERNAL grpc-go's (so the Collector's) to a message
#: that it cannot unmarshal, and INVALID_ARGUMENT the OTLP specification's example of bad data.
_GRPC_BATCH_REFUSED = frozenset(
    {
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.INVALID_ARGUMENT,
    }
)
#: OTLP/HTTP's retryable status codes.
_HTTP_RETRYABLE = frozenset({429, 502, 503, 504})
#: As with gRPC: 400 is OTLP/HTTP's answer to bad data, 413 HTTP's to too much.
_HTTP_BATCH_REFUSED = frozenset({400, 413})

_RETRY_INFO = "/google.rpc.RetryInfo"
_SECONDS = re.compile(r"[0-9]{1,9}")


def result(answer: bytes) -> ExportResult | None:
    """Read the answer to an export that succeeded.

    Args:
        answer: An ``ExportMetricsServiceResponse``.

    Returns:
        None for a full success, else what the destination rejected or warned of. An answer that cannot be
        read changes nothing: the destination said that it took the export.
    """
    try:
        partial = ExportMetricsServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return None
    if not partial.rejected_data_points and not partial.error_message:
        return None
    return ExportResult(rejected_points=partial.rejected_data_points, message=partial.error_message)


def grpc_error(code: grpc.StatusCode, reason: str, details: bytes | None) -> ExportError:
    """What a failed gRPC export means.

    Args:
        code: The status code.
        reason: For the log.
        details: The ``google.rpc.Status`` of ``grpc-status-details-bin``; None where there was none.
    """
    present, delay_s = _retry_info(details or b"")
    if code in _GRPC_RETRYABLE or (code is grpc.StatusCode.RESOURCE_EXHAUSTED and present):
        return RetryableError(reason, retry_after_s=delay_s)
    return BatchRefusedError(reason) if code in _GRPC_BATCH_REFUSED else PermanentError(reason)


def http_error(status: int, reason: str, retry_after_s: float | None) -> ExportError:
    """What a failed HTTP export means.

    Args:
        status: The HTTP status code.
        reason: For the log.
        retry_after_s: What ``Retry-After`` asks for, in seconds.
    """
    if status in _HTTP_RETRYABLE:
        return RetryableError(reason, retry_after_s=retry_after_s)
    return BatchRefusedError(reason) if status in _HTTP_BATCH_REFUSED else PermanentError(reason)


def http_retry_after_s(value: str | None, now: datetime) -> float | None:
    """Read ``Retry-After`` (RFC 9110, section 10.2.3).

    Args:
        value: The header's value: seconds or a date.
        now: The present time, with its zone.

    Returns:
        Seconds from now, None where the value is missing, past or malformed.
    """
    if value is None:
        return None
    if _SECONDS.fullmatch(value.strip()):
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    seconds = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()
    return seconds if seconds > 0 else None


def status_message(status: bytes) -> str:
    """The message of a ``google.rpc.Status``, the body of a failure in OTLP/HTTP; may be empty."""
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
    """The length-delimited fields of a message whose generated type would be a dependency of its own."""
    try:
        fields = UnknownFieldSet(Empty.FromString(message))
    except DecodeError:
        return []
    every = (fields[index] for index in range(len(fields)))
    return [(field.field_number, field.data) for field in every if field.wire_type == 2]
