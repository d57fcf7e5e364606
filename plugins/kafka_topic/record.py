"""Builds the key and headers of a push's Kafka record.

The value is the push's OTLP bytes, an ``ExportMetricsServiceRequest``, like the OpenTelemetry
Collector's Kafka exporter writes as ``otlp_proto``. The key is the client instance id, so that the
pushes of a client keep their order. The headers are text: the push's labels and the data that its
bytes do not contain.
"""

from __future__ import annotations

from plugins._shared.push_fields import push_fields
from receiver.plugin import Push

#: The ``format_version`` header.
_FORMAT_VERSION = 1


def key(push: Push) -> bytes:
    """Return the client instance id in Kafka's text form."""
    return push.payload.client_instance_id.encode()


def headers(push: Push) -> list[tuple[str, str | bytes | None]]:
    """Return the headers, with numbers as decimal text and without nulls."""
    fields = {"format_version": _FORMAT_VERSION, **push_fields(push)}
    del fields["client_instance_id"]  # the key
    return [(name, _text(value).encode()) for name, value in fields.items() if value is not None]


def _text(value: str | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
