"""Turns pushes into entries, where Spark reads them.

The decoder gives the entries of a push, with the reason if it can't be decoded. One row of each
push has ``is_first``, and with it the push's histograms, and the dimensions of its series if this
JVM has not sent them before.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_streaming.routing import Routes
from spark_streaming.rows import ENTRY_ROWS

#: Bytes of a dead letter's payload that are kept.
MAX_PAYLOAD_BYTES: Final = 65_536

_MINUTE_NS: Final = 60_000_000_000
_OWN: Final = ("push_id", "received_at_ns", "terminating", "push_interval_ms", "position", "disconnected")


class Entries:
    """The columns of entries.

    They are built once, because that costs many calls of Spark's JVM.

    Args:
        plan: The decoder's plan.
    """

    def __init__(self, plan: str, key_id: str) -> None:
        arguments = (
            *map(f.col, ("otlp", "client_instance_id", "received_at_ns")),
            f.lit(plan),
            f.lit(key_id),
        )
        self._decoded = (
            f.col("*"),
            f.col("otlp").isNull().alias("empty"),
            f.call_function("otlp_entries", *arguments).alias("decoded"),
        )
        self._read = {
            describe_all: _read(arguments, describe_all=describe_all) for describe_all in (False, True)
        }
        # A push without entries still counts as a push of the instance that the source names.
        instance = f.coalesce("entry.client_instance_id", "fallback")
        self._selected = _selected(instance)
        self._client_id = f.coalesce("client_id", "entry.client_id")
        self._instance = f.coalesce(instance, f.col("position"))

    def of(self, pushes: DataFrame, routes: Routes, *, describe_all: bool) -> DataFrame:
        """Return the entries of pushes of :mod:`spark_streaming.sources`, with ``slot``."""
        slot = routes.slot(self._client_id, self._instance).alias("slot")
        return pushes.select(*self._decoded).select(*self._read[describe_all]).select(*self._selected, slot)


def _read(arguments: tuple[Column, ...], *, describe_all: bool) -> list[Column]:
    reason = f.when(f.col("empty"), "the record has no value").otherwise(f.col("decoded.error"))
    series = f.call_function("otlp_series", *arguments)
    histograms = f.call_function("otlp_histograms", *arguments)
    has_histograms = f.exists("decoded.entries", lambda entry: entry["histograms"] > 0)
    return [
        *map(f.col, _OWN),
        f.col("client_id"),
        f.col("decoded.fallback").alias("fallback"),
        reason.alias("reason"),
        f.octet_length("otlp").alias("bytes"),
        f.when(reason.isNotNull(), f.substring("otlp", 1, MAX_PAYLOAD_BYTES)).alias("payload"),
        f.when(f.lit(describe_all) | f.col("decoded.describes"), series).alias("series"),
        f.when(has_histograms, histograms).alias("histograms"),
        f.posexplode_outer("decoded.entries").alias("number", "entry"),
    ]


def _selected(instance: Column) -> list[Column]:
    is_first = f.coalesce("number", f.lit(0)) == 0
    replaced: dict[str, Column] = {
        "time_ns": f.coalesce("entry.time_ns", "received_at_ns"),
        "minute": f.coalesce("entry.minute", f.floor(f.col("received_at_ns") / _MINUTE_NS)),
        "client_instance_id": instance,
        "pushes": f.coalesce("entry.pushes", f.lit(1)),
        "points": f.coalesce("entry.points", f.lit(0)),
    }
    names = [name for name in ENTRY_ROWS.names if name not in (*_OWN, "client_key")]
    return [
        *map(f.col, (*_OWN, "reason", "bytes", "payload")),
        is_first.alias("is_first"),
        *(f.when(is_first, f.col(name)).alias(name) for name in ("series", "histograms")),
        *(replaced.get(name, f.col(f"entry.{name}")).alias(name) for name in names),
    ]
