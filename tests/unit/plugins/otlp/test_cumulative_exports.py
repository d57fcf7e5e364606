from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.plugin import BatchRefusedError, ExportResult, Push, RetryableError
from tests.unit.host.support import push
from tests.unit.plugins.destinations import HttpDestination, Reply
from tests.unit.plugins.support import client_push, started

SECOND = 1_000_000_000
BEGAN = 1_700_000_000 * SECOND
DELTA, CUMULATIVE = 1, 2


def counted(number: int, delta: int, *, name: str = "records", temporality: int = DELTA) -> Push:
    """Return a push whose counter grew within one second."""
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    metric.sum.aggregation_temporality = temporality  # type: ignore[assignment]
    metric.sum.is_monotonic = True
    now = BEGAN + number * SECOND
    metric.sum.data_points.add(as_int=delta, start_time_unix_nano=now - SECOND, time_unix_nano=now)
    one = push(number, data=data.SerializeToString())
    return dataclasses.replace(one, context=dataclasses.replace(one.context, received_at_ns=now))


def sums(body: bytes) -> list[tuple[int, int, int]]:
    """Return temporality, start in seconds and number of each data point."""
    return [
        (metric.sum.aggregation_temporality, (point.start_time_unix_nano - BEGAN) // SECOND, point.as_int)
        for resource in MetricsData.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.sum.data_points
    ]


@pytest.fixture
def settings(http_server: HttpDestination) -> dict[str, object]:
    return {
        "endpoint": f"http://127.0.0.1:{http_server.port}",
        "protocol": "http",
        "temporality": "cumulative",
    }


def test_deltas_are_sent_as_received_unless_asked(
    http_server: HttpDestination, settings: dict[str, object]
) -> None:
    with started(**{**settings, "temporality": "as_received"}) as one:
        one.export_batch([counted(1, 5), counted(2, 7)])
    assert sums(http_server.bodies[0]) == [(DELTA, 0, 5), (DELTA, 1, 7)]


def test_deltas_are_added_up(http_server: HttpDestination, settings: dict[str, object]) -> None:
    with started(**settings) as one:
        assert one.export_batch([counted(1, 5), counted(2, 7)]) is None
        assert one.export(counted(3, 1).context, counted(3, 1).payload) is None
    assert [sums(body) for body in http_server.bodies] == [
        [(CUMULATIVE, 0, 5), (CUMULATIVE, 0, 12)],
        [(CUMULATIVE, 0, 13)],
    ]


def test_a_retried_push_counts_once(http_server: HttpDestination, settings: dict[str, object]) -> None:
    replies = iter([Reply(503), Reply(413)])
    http_server.answer = lambda body: next(replies, Reply())
    batch = [counted(1, 5), counted(2, 7), counted(3, 1), counted(4, 2)]

    def failing(kind: type[Exception], pushes: Sequence[Push]) -> None:
        with pytest.raises(kind):
            one.export_batch(pushes)

    with started(**settings) as one:
        failing(RetryableError, batch)
        failing(BatchRefusedError, batch)
        one.export_batch(batch[:2])
        one.export_batch(batch[2:])
        one.export_batch([counted(5, 10)])
    whole = [(CUMULATIVE, 0, number) for number in (5, 12, 13, 15)]
    assert [sums(body) for body in http_server.bodies] == [
        whole,
        whole,
        whole[:2],
        whole[2:],
        [(CUMULATIVE, 0, 25)],
    ]


def test_a_push_that_was_delivered_is_not_sent_again(
    http_server: HttpDestination, settings: dict[str, object]
) -> None:
    with started(**settings) as one:
        one.export_batch([counted(1, 5)])
        assert one.export_batch([counted(1, 5)]) == ExportResult(sent=False)
        one.export_batch([counted(1, 5), counted(2, 7)])
    assert [sums(body) for body in http_server.bodies] == [[(CUMULATIVE, 0, 5)], [(CUMULATIVE, 0, 12)]]


def test_points_that_cannot_be_added_are_reported(
    http_server: HttpDestination, settings: dict[str, object]
) -> None:
    with started(**settings, max_series=1) as one:
        assert one.export_batch(
            [counted(1, 5), counted(2, -7), counted(3, 1, temporality=0)]
        ) == ExportResult(
            rejected_points=2,
            message="2 points can't be made cumulative: nothing to add, too long, or no room",
        )
        assert one.export_batch([counted(4, 1, name="more")]) is not None
    assert sums(http_server.bodies[0])[0] == (CUMULATIVE, 0, 5)


def test_everything_of_a_real_push_arrives(http_server: HttpDestination, settings: dict[str, object]) -> None:
    real = client_push()
    with started(**settings) as one:
        assert one.export_batch([real]) is None
    sent = MetricsData.FromString(http_server.bodies[0])
    expected = MetricsData.FromString(real.payload.data)
    for resource in expected.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.HasField("sum"):
                    metric.sum.aggregation_temporality = CUMULATIVE  # type: ignore[assignment]
    assert sent == expected
