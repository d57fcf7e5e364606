"""Encodes pushes as bytes, for the spool and for plugins in child processes.

Owns the format and its version. Knows nothing of files or sockets.

A push is one byte with the version, four bytes (little-endian) with the length of a JSON text, that
text, and the OTLP bytes up to the end. The text holds two arrays, of the context and of the
payload, and a value's position identifies its field. Fields are only added at the end. A text from
an older receiver lacks the last fields, and one from a newer receiver has more. The version changes
only if that is not enough.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from receiver.plugin import ClientTelemetryContext, ClientTelemetryPayload, Push

_VERSION: Final = 1
_PREFIX: Final = struct.Struct("<BI")

_TEXT: Final = (str,)
_NUMBER: Final = (int,)
_TEXT_OR_NONE: Final = (str, type(None))
_NUMBER_OR_NONE: Final = (int, type(None))
# The order is the format: add fields at the end, and never move or remove one.
_CONTEXT: Final[dict[str, tuple[type, ...]]] = {
    "connection_id": _TEXT,
    "listener": _TEXT,
    "security_protocol": _TEXT,
    "source_address": _TEXT,
    "source_port": _NUMBER,
    "principal": _TEXT,
    "client_id": _TEXT,
    "client_software_name": _TEXT,
    "client_software_version": _TEXT,
    "broker_id": _NUMBER,
    "cluster_id": _TEXT_OR_NONE,
    "subscription_id": _NUMBER,
    "push_interval_ms": _NUMBER,
    "received_at_ns": _NUMBER,
    "sasl_mechanism": _TEXT_OR_NONE,
    "request_version": _NUMBER_OR_NONE,
    "correlation_id": _NUMBER_OR_NONE,
}
_PAYLOAD: Final[dict[str, tuple[type, ...]]] = {
    "client_instance_id": _TEXT,
    "terminating": (bool,),
    "sequence": _NUMBER,
    "push_id": _TEXT,
    "content_type": _TEXT,
}
_context_values: Final = attrgetter(*_CONTEXT)
_payload_values: Final = attrgetter(*_PAYLOAD)
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class PushFormatError(ValueError):
    """The bytes are no push that this receiver can read; the text gives the reason."""


def encode_push(push: Push) -> bytes:
    """Return a push as bytes, for :func:`decode_push`."""
    text = _encode((_context_values(push.context), _payload_values(push.payload))).encode("ascii")
    return b"".join((_PREFIX.pack(_VERSION, len(text)), text, push.payload.data))


def decode_push(data: bytes | memoryview) -> Push:
    """Decode a push that this or another version of the receiver encoded.

    Fields that its writer did not know have their defaults.

    Args:
        data: The bytes of one push; the result does not refer to them.

    Raises:
        PushFormatError: The bytes are no push, or one in a newer version of the format.
    """
    if len(data) < _PREFIX.size:
        raise PushFormatError(f"push of {len(data)} bytes: expected at least {_PREFIX.size}")
    version, length = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise PushFormatError(f"unsupported version {version} of the push format (supported: {_VERSION})")
    start = _PREFIX.size
    end = start + length
    if end > len(data):
        raise PushFormatError(f"push of {len(data)} bytes: its context alone has {length}")
    try:
        context, payload, *_ = json.loads(str(data[start:end], "ascii"))
    except (ValueError, TypeError, RecursionError) as error:
        raise PushFormatError("the push's context is not JSON of two arrays") from error
    try:
        return Push(
            context=ClientTelemetryContext(**_named(_CONTEXT, context)),
            payload=ClientTelemetryPayload(data=bytes(data[end:]), **_named(_PAYLOAD, payload)),
        )
    except TypeError as error:
        raise PushFormatError(f"the push lacks fields: {error}") from error


def _named(fields: dict[str, tuple[type, ...]], values: Sequence[object]) -> dict[str, Any]:
    if type(values) is not list:
        raise PushFormatError("the push's context is not JSON of two arrays")
    for value, (name, types) in zip(values, fields.items(), strict=False):
        if type(value) not in types:
            raise PushFormatError(f"the push's {name} has the type {type(value).__name__}")
    return dict(zip(fields, values, strict=False))
