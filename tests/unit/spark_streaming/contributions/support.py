"""Builders of entries, and a store in memory."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import pyarrow as pa

from spark_streaming.contributions import ClientState, Contribution, Reconciliation, reconcile, required_pairs
from spark_streaming.rows import ENTRY_ROWS, RULES

MINUTE_NS = 60_000_000_000
RATE, LAST, DISTRIBUTION = (RULES.index(name) for name in ("rate", "last", "distribution"))
#: Offset from a series id to its fleet series id.
FLEET = 1000
#: Offset from the identity of a cumulative sum to the first half of its hash.
HIGH = 1 << 40


@dataclass(frozen=True, slots=True)
class Point:
    series: int
    value: float
    rule: int
    breakdown: bool = False


@dataclass(frozen=True, slots=True)
class CumulativePoint:
    """A point of a cumulative sum."""

    identity: int
    value: float
    start_ns: int
    series: int = 900


@dataclass(frozen=True, slots=True)
class CumulativeHistogram:
    """A point of a cumulative histogram, with the counts of its buckets by bounds."""

    identity: int
    start_ns: int
    buckets: tuple[tuple[float, float, int], ...]
    sum: float | None = None
    series: int = 800

    @property
    def parts(self) -> list[tuple[int, int, int, int, float]]:
        """Identity, lower and upper bound as bits, flag and value of each part, its count first."""
        base = 1000 * self.identity
        count = sum(counted for _, _, counted in self.buckets)
        parts = [
            (base, 0, 0, 32, float(count)),
            (base + 1, 0, 0, 64, math.nan if self.sum is None else self.sum),
        ]
        for lower, upper, counted in self.buckets:
            bits = struct.unpack("<qq", struct.pack("<dd", lower, upper))
            parts.append((base + 2 + int(8 * lower), *bits, 96, float(counted)))
        return [
            (identity, low, high, flag | DISTRIBUTION, value) for identity, low, high, flag, value in parts
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    time_ns: int
    client: int = 1
    push: str = "push"
    points: tuple[Point, ...] = ()
    cumulative: tuple[CumulativePoint, ...] = ()
    histograms: tuple[CumulativeHistogram, ...] = ()
    interval_ms: int = 60_000
    terminating: bool = False

    @property
    def minute(self) -> int:
        return self.time_ns // MINUTE_NS


def table(entries: Sequence[Entry]) -> pa.Table:
    rows = []
    for entry in entries:
        cumulative = entry.cumulative
        n = len(cumulative)
        gauges = [point for point in entry.points if point.rule in (RATE, LAST, DISTRIBUTION)]
        rows.append(
            {
                "push_id": entry.push,
                "received_at_ns": entry.time_ns,
                "terminating": entry.terminating,
                "push_interval_ms": entry.interval_ms,
                "time_ns": entry.time_ns,
                "minute": entry.minute,
                "client_key": entry.client,
                "client_instance_id": str(entry.client),
                "pushes": 1,
                "points": len(entry.points) + n,
                "gauges": _encoded(gauges),
                "added": _encoded([point for point in entry.points if point not in gauges]),
                "cumulative": struct.pack(
                    f"<{6 * n}q{n}d{n}b",
                    *(g.series for g in cumulative),
                    *(g.series + FLEET for g in cumulative),
                    *(g.identity + HIGH for g in cumulative),
                    *(-g.identity for g in cumulative),
                    *(g.start_ns for g in cumulative),
                    *(entry.time_ns for _ in cumulative),
                    *(g.value for g in cumulative),
                    *(0 for _ in cumulative),
                ),
                "cumulative_histograms": _histograms(entry),
            }
        )
    return pa.Table.from_pylist(rows, schema=ENTRY_ROWS)


def _histograms(entry: Entry) -> bytes:
    parts = [(histogram, *part) for histogram in entry.histograms for part in histogram.parts]
    n = len(parts)
    return struct.pack(
        f"<{8 * n}q{n}d{n}b",
        *(histogram.series for histogram, *_ in parts),
        *(histogram.series + FLEET for histogram, *_ in parts),
        *(identity + HIGH for _, identity, *_ in parts),
        *(-identity for _, identity, *_ in parts),
        *(histogram.start_ns for histogram, *_ in parts),
        *(entry.time_ns for _ in parts),
        *(lower for _, _, lower, _, _, _ in parts),
        *(upper for _, _, _, upper, _, _ in parts),
        *(value for *_, value in parts),
        *(flag for *_, flag, _ in parts),
    )


def _encoded(points: Sequence[Point]) -> bytes:
    k = len(points)
    return struct.pack(
        f"<{k}q{k}q{k}d{k}b",
        *(p.series for p in points),
        *(p.series + FLEET for p in points),
        *(p.value for p in points),
        *(p.rule | 16 * p.breakdown for p in points),
    )


def bucket(value: float) -> int:
    """floor(8 * log2(value)), exactly."""
    if value == 0:
        return -32768
    power = Fraction(abs(value)) ** 8
    floor = power.numerator.bit_length() - power.denominator.bit_length()
    floor -= power < Fraction(2) ** floor
    floor = max(-8000, min(8000, floor))
    return floor if value > 0 else -20000 - floor


@dataclass(slots=True)
class Store:
    """In-memory store of totals, contributions and clients."""

    sums: Counter[tuple[int, int]] = field(default_factory=Counter)
    points: Counter[tuple[int, int]] = field(default_factory=Counter)
    spread: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    buckets: Counter[tuple[int, float, float]] = field(default_factory=Counter)
    without_sum: set[tuple[int, int]] = field(default_factory=set)
    contributions: dict[tuple[int, int], Contribution] = field(default_factory=dict)
    clients: dict[int, ClientState] = field(default_factory=dict)
    rows: int = 0

    def batch(self, entries: Sequence[Entry], *, closed: int = 0) -> Reconciliation:
        rows = table(entries)
        clients = {e.client: self.clients[e.client] for e in entries if e.client in self.clients}
        stored = {
            pair: self.contributions[pair]
            for pair in required_pairs(rows, clients) & self.contributions.keys()
        }
        return self._merge(reconcile(rows, stored, clients, closed=closed))

    def maintenance(self, closed: int) -> Reconciliation:
        return self._merge(reconcile(ENTRY_ROWS.empty_table(), {}, self.clients, closed=closed))

    def _merge(self, reconciled: Reconciliation) -> Reconciliation:
        for row in reconciled.rows.to_pylist():
            assert row["fleet_id"] == row["series_id"] + FLEET
            if row["sum"] is None:
                self.without_sum.add((row["minute"], row["series_id"]))
            else:
                self.sums[row["minute"], row["series_id"]] += row["sum"]
            self.points[row["minute"], row["series_id"]] += row["points"]
            if row["spread"] is not None:
                self.spread[row["minute"], row["series_id"], row["spread"]] += row["observations"]
        for row in reconciled.buckets.to_pylist():
            self.buckets[row["minute"], row["lower"], row["upper"]] += row["count"]
        for contribution in reconciled.contributions:
            self.rows += 1
            for minute in range(contribution.minute, contribution.last_minute + 1):
                self.contributions[contribution.client_key, minute] = contribution._replace(
                    minute=minute, until=-1
                )
        self.clients.update((c.client_key, c) for c in reconciled.clients)
        return reconciled

    def total(self) -> dict[tuple[int, int], float]:
        return {key: value for key, value in self.sums.items() if not math.isclose(value, 0, abs_tol=1e-9)}

    def observed(self) -> dict[tuple[int, int, int], int]:
        return {key: value for key, value in self.spread.items() if value}
