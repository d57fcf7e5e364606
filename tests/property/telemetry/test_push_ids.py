"""Push ids: equal for repeats and for nothing else."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace

import zstandard
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.telemetry.identity import Broker
from receiver.wire.uuid import Uuid
from tests.unit.telemetry.parts import Client, connection, subscription

COMPRESS: dict[int, Callable[[bytes], bytes]] = {0: bytes, 1: gzip.compress, 4: zstandard.compress}
INTERVAL_S = 10


def metrics(values: list[int]) -> bytes:
    """Return a push with so many points; without any, it has only a metric's name."""
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="a")
    for value in values:
        metric.gauge.data_points.add(as_int=value)
    return data.SerializeToString()


@given(
    pushes=st.lists(
        st.tuples(
            st.integers(2, 3),  # instance
            st.integers(0, 1),  # broker
            st.sampled_from([None, *map(metrics, ([], [1], [2], [1, 2]))]),
            st.sampled_from(sorted(COMPRESS)),
        ),
        max_size=12,
    ),
    ends=st.booleans(),
)
def test_pushes_have_one_id_if_they_are_repeats(
    pushes: list[tuple[int, int, bytes | None, int]], ends: bool
) -> None:
    brokers = [Client(subscription(), connected=connection(id=f"c{number}")) for number in range(2)]
    for number, client in enumerate(brokers):
        client.identity = replace(client.identity, broker=Broker(id=number))
    seen: dict[str, object] = {}
    for turn, (number, at, data, codec) in enumerate(pushes, 1):
        client = brokers[at]
        client.id = Uuid(bytes(15) + bytes([number]))
        assert client.get(turn * INTERVAL_S).response.error_code == 0
        terminating = ends and turn == len(pushes)
        outcome = client.push(
            turn * INTERVAL_S,
            data and COMPRESS[codec](data),
            compression_type=codec,
            terminating=terminating,
            received_at_ns=turn * INTERVAL_S * 1_000_000_000,
        )
        assert outcome.push is not None
        has_points = data not in (None, metrics([]))
        content = (number, data, terminating) if has_points else turn
        assert seen.setdefault(outcome.push.payload.push_id, content) == content
    assert len(set(seen.values())) == len(seen), "a repeat has another id"
