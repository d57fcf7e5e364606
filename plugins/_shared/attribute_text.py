"""Writes attribute values as text."""

from __future__ import annotations

import base64
import json
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue


def attribute_text(value: AnyValue) -> str:
    """Format an attribute's value.

    Source: OpenTelemetry specification, "Attribute", "AnyValue representation".
    """
    plain = _plain(value)
    if plain is None:
        return ""
    if isinstance(plain, str):
        return plain
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def _plain(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case "array_value":
            return [_plain(item) for item in value.array_value.values]
        case "kvlist_value":
            return {item.key: _plain(item.value) for item in value.kvlist_value.values}
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode("ascii")
        case None:
            return None
        case form:
            return getattr(value, form)
