"""The Arrow schema of a push, for journals and published files.

Columns may be added at the end, but never renamed or redefined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from plugins._shared.push_fields import push_fields
from receiver.plugin import Push, PushIdentity

#: Stored in each file's metadata as ``kafka_client_telemetry.pushes``.
FORMAT_VERSION = 1

_TEXT = pa.string()

#: ``received_at`` has microseconds, because Spark reads no finer type. ``received_at_ns`` is exact.
SCHEMA = pa.schema(
    [
        pa.field("push_id", _TEXT, nullable=False),
        pa.field("client_instance_id", _TEXT, nullable=False),
        pa.field("received_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("received_at_ns", pa.int64(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("terminating", pa.bool_(), nullable=False),
        pa.field("client_id", _TEXT, nullable=False),
        pa.field("client_software_name", _TEXT, nullable=False),
        pa.field("client_software_version", _TEXT, nullable=False),
        pa.field("principal", _TEXT, nullable=False),
        pa.field("client_source_address", _TEXT, nullable=False),
        pa.field("client_source_port", pa.int32(), nullable=False),
        pa.field("broker_id", pa.int32(), nullable=False),
        pa.field("cluster_id", _TEXT),
        pa.field("listener", _TEXT, nullable=False),
        pa.field("security_protocol", _TEXT, nullable=False),
        pa.field("sasl_mechanism", _TEXT),
        pa.field("subscription_id", pa.int32(), nullable=False),
        pa.field("push_interval_ms", pa.int32(), nullable=False),
        pa.field("otlp", pa.binary(), nullable=False),
    ],
    metadata={"kafka_client_telemetry.pushes": str(FORMAT_VERSION)},
)

#: The columns of :attr:`receiver.plugin.Push.identity`.
IDENTITY = ("client_instance_id", "received_at_ns", "sequence")


def record_batch(pushes: Sequence[Push]) -> pa.RecordBatch:
    """Convert pushes to rows, in their order."""
    rows = [
        {**push_fields(push), "received_at": push.context.received_at_ns // 1000, "otlp": push.payload.data}
        for push in pushes
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def identities(rows: pa.RecordBatch | pa.Table) -> Iterator[PushIdentity]:
    """Yield the push identities of rows, in their order."""
    return zip(*(rows.column(name).to_pylist() for name in IDENTITY), strict=True)
