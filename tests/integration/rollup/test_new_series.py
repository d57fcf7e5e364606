"""A client that changes its series with each push: intake and roll-up bound what it adds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from receiver.settings.metric_processing import SeriesSettings
from receiver.telemetry.otlp import label_metrics
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import Uuid, uuid_to_text
from spark_streaming.job import Job
from spark_streaming.postgres import Store
from spark_streaming.settings import RetentionSettings, RollupSettings
from tests.integration.rollup.conftest import Query, Roll
from tests.integration.rollup.pushes import MINUTE_NS, SECOND_NS, Spooled, spool
from tests.integration.rollup.pushes import Client as Labelled
from tests.unit.telemetry.otlp_parts import LABELS
from tests.unit.telemetry.parts import Client as PushingClient
from tests.unit.telemetry.parts import connection, subscription

PUSHES = 6
SERIES_OF_PUSH = 9_900
INSTANCE = Uuid(bytes(range(16)))
#: Whole hours, because bounds are by hour.
NOW = (time.time_ns() // (60 * MINUTE_NS) - 3) * 60 * MINUTE_NS
#: So few that they are added in seconds.
ADDED = 1_000
#: The decoder's own series of a client.
OWN = ["kafka.client.telemetry.clients", "kafka.client.telemetry.pushes"]
OVERFLOW = "kafka.client.telemetry.overflow"


def invented(number: int, at_ns: int, series: int = SERIES_OF_PUSH) -> bytes:
    """Return a push whose metrics no other push has."""
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for name in range(series):
        point = scope.metrics.add(name=f"invented.{number}.{name}").gauge.data_points.add()
        point.time_unix_nano, point.as_double = at_ns, 1.0
    return data.SerializeToString()


def spooled(otlp: bytes, at_ns: int) -> Spooled:
    who = Labelled(instance=uuid_to_text(INSTANCE), client_id="java-producer", principal="User:ANONYMOUS")
    return Spooled(client=who, received_at_ns=at_ns + SECOND_NS, otlp=otlp)


@pytest.mark.full
def test_six_pushes_of_59_400_series_are_bounded_twice(roll: Roll, query: Query, folder: Path) -> None:
    allowed = SeriesSettings().new_per_client_per_hour or 0
    client = PushingClient(subscription(), connected=connection())
    kept, overflowed, pushes = 0, 0, []
    for number in range(PUSHES):
        at_ns = NOW + number * SECOND_NS
        request = PushTelemetryRequest(client_instance_id=INSTANCE, metrics=invented(number, at_ns))
        taken = client.telemetry.accept(client.identity, request, now=0.0, received_at_ns=at_ns)
        assert taken.push is not None, "the client is not punished"
        kept += taken.metrics.series
        overflowed += taken.metrics.not_admitted
        pushes.append(spooled(bytes(taken.push.payload.data), at_ns))
    assert (kept, overflowed) == (allowed, PUSHES * SERIES_OF_PUSH - allowed)

    spool(folder, "one", pushes)
    with capture_logs() as log:
        roll(new_series={"client_per_hour": ADDED})
    # And the client's overflow series, which is over the bound.
    assert query("SELECT count(*) FROM series") == [(ADDED + 1,)]
    assert query("SELECT metric FROM series WHERE metric = ANY (%s) ORDER BY 1", OWN) == [
        (item,) for item in OWN
    ]
    ((points, left_out),) = query("SELECT points, overflowed FROM ledger")
    ((stored,),) = query(
        "SELECT sum(points)::bigint FROM metric_1m WHERE metric <> ALL (%s)", [*OWN, OVERFLOW]
    )
    assert stored == points - left_out < kept
    lines = [line for line in log if line["event"] == "new series over a bound are left out"]
    assert [line["client_id"] for line in lines] == ["java-producer"]


@pytest.mark.full
def test_refused_series_come_in_when_they_are_pushed_in_another_hour(
    roll: Roll,
    query: Query,
    folder: Path,
    spark: SparkSession,
    settings: Callable[..., RollupSettings],
    database: str,
) -> None:
    def pushed(at_ns: int) -> Spooled:
        return spooled(label_metrics(invented(0, at_ns, 30), LABELS, max_entries=1 << 20).data, at_ns)

    bound = {"client_per_hour": 12}
    spool(folder, "one", [pushed(NOW)])
    roll(new_series=bound)
    # And one that says how many points the client lacks.
    assert query("SELECT count(*) FROM series") == query("SELECT count(*) FROM fleet_series") == [(13,)]
    lacks = "SELECT client_id, sum, points FROM metric_1m WHERE metric = %s AND points > 0 ORDER BY bucket"
    assert query(lacks, OVERFLOW) == [("java-producer", 20.0, 1)]
    assert query("SELECT points, overflowed FROM ledger") == [(30, 20)]
    # The JVM does not describe them again unless it is asked, and a task whose store is another one
    # does not remember that they were refused.
    spool(folder, "two", [pushed(NOW + 60 * MINUTE_NS)])
    url = make_conninfo(database, keepalives_count="7")
    with Store(url, retention=RetentionSettings()) as another:
        Job(spark, another, settings(new_series=bound), threading.Event()).run_once()
    assert query("SELECT count(*) FROM series") == [(25,)]
    assert query(lacks, OVERFLOW) == [("java-producer", 20.0, 1), ("java-producer", 8.0, 1)]
    assert query("SELECT points, overflowed FROM ledger ORDER BY committed_at") == [(30, 20), (30, 8)]
    values = "SELECT count(*), count(DISTINCT metric) FROM metric_1m WHERE metric <> ALL (%s)"
    assert query(values, [*OWN, OVERFLOW]) == [(10 + 22, 22)]
