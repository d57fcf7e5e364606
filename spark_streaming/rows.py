"""Arrow schemas of the tables that the roll-up's modules exchange.

Minutes are whole minutes since the epoch. Times are nanoseconds since the epoch unless a name says
otherwise.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

#: How values combine (``combines`` in the catalogue). The index is the code in ``flags`` and
#: ``rule``.
RULES: Final = ("sum", "rate", "last", "max", "min", "distribution", "none")

#: Sums of counts saturate here. The sum of two still fits into 64 bits.
MAX_TOTAL: Final = (1 << 62) - 1

#: Changes to the totals of minutes. ``points``, ``sum``, ``pushed_sum`` and ``observations`` are
#: added, ``min`` and ``max`` compared. Corrections have 0 points and may have negative sums and
#: observations. ``pushed_sum`` is the sum of the pushed values as they are, for averages: only of
#: rules rate and last, whose ``sum`` is corrected. It is null for other rules. ``sum`` is null for
#: a histogram without a sum, and makes the sum of its minute null: part of a sum gives no average.
ROLLUP_ROWS: Final = pa.schema(
    [
        pa.field("minute", pa.int64(), nullable=False),
        pa.field("series_id", pa.int64(), nullable=False),
        pa.field("fleet_id", pa.int64(), nullable=False),
        pa.field("breakdown", pa.bool_(), nullable=False),
        pa.field("spread", pa.int16()),
        pa.field("points", pa.int64(), nullable=False),
        pa.field("sum", pa.float64()),
        pa.field("min", pa.float64()),
        pa.field("max", pa.float64()),
        pa.field("observations", pa.int64(), nullable=False),
        pa.field("pushed_sum", pa.float64()),
    ]
)

#: Counts to add to histogram buckets.
BUCKET_ROWS: Final = pa.schema(
    [
        pa.field("minute", pa.int64(), nullable=False),
        pa.field("series_id", pa.int64(), nullable=False),
        pa.field("lower", pa.float64(), nullable=False),
        pa.field("upper", pa.float64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)

#: Dimensions that all series of a client instance share.
CLIENT_DIMENSIONS: Final = (
    "cluster_id",
    "client_software_name",
    "client_software_version",
    "client_id",
    "principal",
    "group_id",
)

#: Dimensions of series. ``series_high`` and ``series_low`` are the halves of the 128-bit series
#: hash.
SERIES_ROWS: Final = pa.schema(
    [
        pa.field("series_high", pa.int64(), nullable=False),
        pa.field("series_low", pa.int64(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        *(
            pa.field(name, pa.string())
            for name in (
                *CLIENT_DIMENSIONS,
                "topic",
                "node_id",
                "node_role",
                "reason",
                "error",
                "acks",
                "partition",
            )
        ),
        pa.field("breakdown", pa.bool_(), nullable=False),
        pa.field("rule", pa.int8(), nullable=False),
    ]
)

#: Labels of a client instance beside its id. Unknown ones are null.
CLIENT_LABELS: Final = (
    "client_id",
    "client_software_name",
    "client_software_version",
    "principal",
    "group_id",
    "cluster_id",
    "client_source_address",
    "client_source_port",
    "client_rack",
    "group_instance_id",
    "group_member_id",
    "transactional_id",
    "application_id",
    "broker_id",
    "client_owner",
)

#: Entries: the data points of one push, instance and time. ``gauges`` has the points that depend on
#: the client's other pushes (rules rate, last, distribution), ``added`` those that are only added
#: or compared. ``left_out`` counts points that count nothing: repeated ones of the push, and sums
#: below 0 that only rise. A push without entries has one row with 0 ``points``, no values, the time
#: of receipt, and no labels but the instance.
ENTRY_ROWS: Final = pa.schema(
    [
        pa.field("push_id", pa.string(), nullable=False),
        pa.field("received_at_ns", pa.int64(), nullable=False),
        pa.field("terminating", pa.bool_(), nullable=False),
        pa.field("push_interval_ms", pa.int64(), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("minute", pa.int64(), nullable=False),
        pa.field("client_key", pa.int64(), nullable=False),
        pa.field("client_instance_id", pa.string(), nullable=False),
        *(pa.field(name, pa.string()) for name in CLIENT_LABELS),
        pa.field("pushes", pa.int32(), nullable=False),
        pa.field("points", pa.int32(), nullable=False),
        pa.field("left_out", pa.int32()),
        pa.field("gauges", pa.binary()),
        pa.field("added", pa.binary()),
        pa.field("cumulative", pa.binary()),
        pa.field("cumulative_histograms", pa.binary()),
        pa.field("watched", pa.list_(pa.float64())),
    ]
)


def cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a schema's columns of a table, in its order and types."""
    return pa.Table.from_arrays([table[column.name].cast(column.type) for column in schema], schema=schema)
