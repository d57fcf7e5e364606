"""The decoder's work grows no faster than its input, whatever a client sends.

The verdicts are steps and allocated bytes, not seconds. A collection that is copied again and again
shows in the allocated bytes, repeated reading shows in the steps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_streaming.catalogue import plan
from spark_streaming.series_hashes import register_key
from tests.fuzz.protobuf import varint
from tests.unit.spark_streaming.identities import KEY
from tests.unit.spark_streaming.pushes import PAYLOADS, RECEIVED_AT_NS

_FUNCTIONS: Final = ("otlp_entries", "otlp_histograms", "otlp_series", "otlp_data_points")
#: Twice the input may cost that much more. Lists that grow by doubling make steps of the allocated
#: bytes.
_MOST_GROWTH: Final = 2.2
_DOUBLINGS: Final = 4
_SMALLEST: Final = 256
_TIME: Final = b"\x19" + RECEIVED_AT_NS.to_bytes(8, "little")
_ONE: Final = b"\x21" + bytes(6) + b"\xf0\x3f"


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def attribute(value: bytes, key: bytes = b"topic") -> bytes:
    """A KeyValue with this AnyValue, which may come in parts."""
    return field(1, key) + value


def resource(content: bytes) -> bytes:
    return field(1, field(1, content) + field(2, field(2, metric(field(1, _TIME + _ONE)))))


def metric(points: bytes, kind: int = 5, name: bytes = b"m") -> bytes:
    return field(1, name) + field(kind, b"\x10\x01" + points)


def metrics(content: bytes) -> bytes:
    return field(1, field(1, field(1, attribute(field(2, field(1, b"i")), b"client_id"))) + field(2, content))


def point(content: bytes) -> bytes:
    return metrics(field(2, metric(field(1, _TIME + _ONE + content))))


def text(number: int) -> bytes:
    return b"%08d" % number


def same_hash(number: int) -> bytes:
    """One of 2 ** 13 texts of which Java's String.hashCode is the same."""
    return b"".join(b"Aa" if number >> bit & 1 else b"BB" for bit in range(13))


def pair(number: int) -> bytes:
    """A map with one pair."""
    return field(1, field(1, text(number)) + field(2, field(1, b"v")))


def many(each: Callable[[int], bytes]) -> Callable[[int], bytes]:
    return lambda size: b"".join(map(each, range(size)))


SHAPES: Final[dict[str, Callable[[int], bytes]]] = {
    "parts of a map": lambda n: point(field(7, attribute(field(2, many(lambda i: field(6, pair(i)))(n))))),
    "parts of a map in parts of a value": lambda n: point(
        field(7, attribute(many(lambda i: field(2, field(6, pair(i))))(n)))
    ),
    "parts of a map in a list": lambda n: point(
        field(7, attribute(field(2, field(5, field(1, many(lambda i: field(6, pair(i)))(n))))))
    ),
    "parts of a list": lambda n: point(
        field(7, attribute(field(2, many(lambda i: field(5, field(1, field(1, text(i)))))(n))))
    ),
    "parts of a map of a resource": lambda n: resource(
        field(1, attribute(field(2, many(lambda i: field(6, pair(i)))(n)), b"client_id"))
    ),
    "keys of one hash": lambda n: point(
        field(7, attribute(field(2, field(6, many(lambda i: field(1, field(1, same_hash(i))))(n)))))
    ),
    "attributes of a point": lambda n: point(
        many(lambda i: field(7, attribute(field(2, field(1, b"v")), text(i))))(n)
    ),
    "attributes of a resource": lambda n: resource(
        many(lambda i: field(1, attribute(field(2, field(1, b"v")), text(i))))(n)
    ),
    "one label again and again": lambda n: resource(
        field(1, attribute(field(2, field(1, b"v")), b"client_id")) * n
    ),
    "parts of a resource": lambda n: (
        metrics(field(2, metric(field(1, _TIME + _ONE)))) + field(1, field(1, b"") * n)
    ),
    "resources": lambda n: many(
        lambda i: resource(field(1, attribute(field(2, field(1, text(i))), b"client_instance_id")))
    )(n),
    "one resource again and again": lambda n: (
        resource(field(1, attribute(field(2, field(1, b"i")), b"client_instance_id"))) * n
    ),
    "scopes": lambda n: field(1, field(2, field(1, field(1, b"s")) + field(2, metric(field(1, _ONE)))) * n),
    "parts of a scope": lambda n: field(1, field(2, field(1, field(1, b"s")) * n)),
    "metrics": lambda n: metrics(many(lambda i: field(2, metric(field(1, _TIME + _ONE), name=text(i))))(n)),
    "data of other types": lambda n: metrics(
        field(2, (field(5, field(1, _ONE)) + field(7, b"\x10\x01")) * n)
    ),
    "names of a metric": lambda n: metrics(field(2, field(1, b"name") * n + metric(field(1, _ONE)))),
    "points": lambda n: metrics(field(2, metric(field(1, _TIME + _ONE) * n))),
    "points of other times": lambda n: metrics(
        field(
            2,
            metric(
                many(
                    lambda i: field(
                        1,
                        b"\x19" + (RECEIVED_AT_NS - i % 1500 * 2_000_000_000).to_bytes(8, "little") + _ONE,
                    )
                )(n)
            ),
        )
    ),
    "points of other series": lambda n: metrics(
        field(
            2,
            metric(
                many(lambda i: field(1, _TIME + _ONE + field(7, attribute(field(2, field(1, text(i)))))))(n)
            ),
        )
    ),
    "cumulative sums": lambda n: metrics(
        field(
            2,
            field(1, b"m")
            + field(
                7,
                b"\x10\x02\x18\x01"
                + many(lambda i: field(1, _TIME + _ONE + field(7, attribute(field(2, field(1, text(i)))))))(
                    n
                ),
            ),
        )
    ),
    "buckets": lambda n: metrics(
        field(
            2,
            metric(
                field(
                    1,
                    _TIME
                    + b"\x21\x01"
                    + bytes(7)
                    + field(6, (b"\x01" + bytes(7)) * (n + 1))
                    + field(7, struct.pack(f"<{n}d", *range(n))),
                ),
                kind=9,
            ),
        )
    ),
    "parts of exponential buckets": lambda n: metrics(
        field(2, metric(field(1, _TIME + b"\x21\x01" + bytes(7) + field(8, b"\x10\x01") * n), kind=10))
    ),
    "groups": lambda n: (b"\x7b" * 90 + b"\x7c" * 90) * n,
    "groups in a metric": lambda n: metrics(field(2, b"\x7b\x7c" * n + metric(field(1, _ONE)))),
    "nested maps": lambda n: point(field(7, attribute(field(2, nested(40)))) * n),
    "long text": lambda n: point(field(7, attribute(field(2, field(1, b"x\0" * 8 * n))))),
    "text to escape": lambda n: point(
        field(7, attribute(field(2, field(5, field(1, field(1, b'"\1' * n))))))
    ),
    "bytes": lambda n: point(field(7, attribute(field(2, field(7, b"x" * n))))),
    # Of any size its points come twice, so that it is walked over twice.
    "real pushes": lambda n: max(PAYLOADS, key=len) * (2 * n // _SMALLEST),
}


def nested(depth: int) -> bytes:
    inner = b""
    for _ in range(depth // 2):
        inner = field(6, field(1, field(1, b"k") + field(2, inner)))
    return inner


@pytest.fixture(scope="module")
def costs(spark: SparkSession) -> dict[str, list[dict[str, list[int]]]]:
    """What each shape costs in each size."""
    rows = [
        {"shape": shape, "size": _SMALLEST << doubling, "otlp": make(_SMALLEST << doubling)}
        for shape, make in SHAPES.items()
        for doubling in range(_DOUBLINGS + 1)
    ]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows)).coalesce(1)
    arguments = (
        f.col("otlp"),
        f.lit("i"),
        f.lit(RECEIVED_AT_NS),
        f.lit(plan(max_behind_s=3600, max_ahead_s=1)),
        f.lit(KEY.key_id),
    )
    register_key(spark, KEY)
    found = frame.select(
        "shape",
        "size",
        f.call_function("otlp_cost", *arguments).alias("cost"),
        f.call_function("otlp_entries", *arguments)["error"].alias("error"),
    ).toArrow()
    costs: dict[str, list[dict[str, list[int]]]] = {}
    for row in sorted(found.to_pylist(), key=lambda row: (row["shape"], row["size"])):
        assert row["error"] is None, row
        costs.setdefault(row["shape"], []).append(row["cost"])
    return costs


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("what", ["steps", "allocated"])
def test_twice_the_input_costs_twice_the_work(
    costs: dict[str, list[dict[str, list[int]]]], shape: str, what: str
) -> None:
    shape_costs = [cost[what] for cost in costs[shape]]
    for at, function in enumerate(_FUNCTIONS):
        first, last = shape_costs[0][at], shape_costs[-1][at]
        growth = (last / first) ** (1 / _DOUBLINGS)
        assert growth <= _MOST_GROWTH, (function, [cost[at] for cost in shape_costs])


def test_steps_are_bounded_by_the_bytes(costs: dict[str, list[dict[str, list[int]]]]) -> None:
    for shape, shape_costs in costs.items():
        size = len(SHAPES[shape](_SMALLEST << _DOUBLINGS))
        # A point of some 20 bytes may be looked for among all entries of its client.
        assert max(shape_costs[-1]["steps"]) <= 20 * size, shape
