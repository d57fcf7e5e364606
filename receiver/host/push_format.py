"""How a push becomes bytes and is read again: in the spool's frames, and on the pipe to a plugin's process.

Owns the format and its version. Knows nothing of files or pipes.

A push is a byte with the version, four bytes (little-endian) with the length of a JSON text, that
text, and then the OTLP bytes up to the end. The text is two arrays, of the context and of the
payload, whose values are told by their places: a field is only ever added at the end, so that a
text without it is an older receiver's, and one with more is a newer one's. The version changes only
when that is not enough.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from receiver.plugin import ClientTelemetryContext, ClientTelemetryPayload, Push

__all__ = ["PushFormatError", "decode_push", "encode_push"]

_VERSION: Final = 1
_PREFIX: Final = struct.Struct("<BI")

_TEXT: Final = (str,)
_NUMBER: Final = (int,)
_TEXT_OR_NONE: Final = (str, type(None))
# The order is the format: fields are added at the end, and never moved or taken away.
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
    """Bytes are no push that this receiver can read; the text says why."""


def encode_push(push: Push) -> bytes:
    """Return a push as bytes, for :func:`decode_push`."""
    text = _encode((_context_values(push.context), _payload_values(push.payload))).encode("ascii")
    return b"".join((_PREFIX.pack(_VERSION, len(text)), text, push.payload.data))


def decode_push(data: bytes | memoryview) -> Push:
    """Read what :func:`encode_push` made, here or in another version of the receiver.

    Args:
        data: The bytes of one push; nothing of them is kept.

    Returns:
        The push; fields that its writer did not know have their defaults.

    Raises:
        PushFormatError: The bytes are no push, or one in a newer version of the format.
    """
    if len(data) < _PREFIX.size:
        raise PushFormatError(f"a push of {len(data)} bytes is shorter than its prefix of {_PREFIX.size}")
    version, length = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise PushFormatError(f"the push is in version {version} of the format, only {_VERSION} can be read")
    start = _PREFIX.size
    end = start + length
    if end > len(data):
        raise PushFormatError(f"a push of {len(data)} bytes has no room for the {length} of its context")
    try:
        context, payload, *_ = json.loads(str(data[start:end], "ascii"))
    except (ValueError, TypeError, RecursionError) as error:
        raise PushFormatError("the push's context is no JSON of two arrays") from error
    try:
        return Push(
            context=ClientTelemetryContext(**_named(_CONTEXT, context)),
            payload=ClientTelemetryPayload(data=bytes(data[end:]), **_named(_PAYLOAD, payload)),
        )
    except TypeError as error:
        raise PushFormatError(f"the push lacks fields: {error}") from error


def _named(fields: dict[str, tuple[type, ...]], values: Sequence[object]) -> dict[str, Any]:
    if type(values) is not list:
        raise PushFormatError("the push's context is no JSON of two arrays")
    for value, (name, types) in zip(values, fields.items(), strict=False):
        if type(value) not in types:
            raise PushFormatError(f"the push's {name} is of the type {type(value).__name__}")
    return dict(zip(fields, values, strict=False))
