"""What the dashboards on Prometheus alone show of a fleet whose clients' doings are known.

Prometheus is real. The series are named as the plugin `prometheus` names them, which its own tests
compare with Prometheus's OTLP endpoint. Clients push every five minutes, so counters grow in steps.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import pytest

from deploy.dashboards.series import series
from plugins.prometheus.config import RemoteWriteConfig
from plugins.prometheus.lines import LabelSet
from plugins.prometheus.messages import Sample, number_sample, time_field
from plugins.prometheus.names import MetricName, MetricType
from plugins.prometheus.remote_write import RemoteWriter
from tests.testbed.dashboard_queries import DASHBOARDS
from tests.testbed.prometheus import Prometheus

BOARDS: Final = tuple(name for name in DASHBOARDS if name.startswith("prometheus-"))
MINUTES: Final = 60
END_S: Final = time.time() // 60 * 60
FETCH: Final = "consumer.fetch.manager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What a client does: totals for each second, and gauges."""

    name: str
    late: int
    totals: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    group: str = ""
    version: str = "4.4.0"

    def labels(self) -> LabelSet:
        labels = {
            "job": "kafka_clients",
            "instance": f"instance-{self.name}",
            "client_instance_id": f"instance-{self.name}",
            "client_id": self.name,
            "client_software_name": "apache-kafka-java",
            "client_software_version": self.version,
            "cluster_id": "c1",
            "principal": "User:app",
        } | ({"group_id": self.group} if self.group else {})
        return LabelSet(tuple(sorted(labels.items())))


PRODUCER: Final = {
    "producer.node.request.latency.avg": 5.0,
    "producer.node.request.latency.max": 20.0,
    "producer.produce.throttle.time.max": 0.0,
}
CONSUMER: Final = {
    f"{FETCH}.records.lag.max": 10.0,
    f"{FETCH}.fetch.throttle.time.max": 0.0,
    "consumer.poll.idle.ratio.avg": 0.5,
    "consumer.node.request.latency.max": 500.0,
    "consumer.coordinator.assigned.partitions": 3.0,
}
DOINGS: Final = (
    Doing(
        name="steady",
        late=0,
        totals={"producer.record.send.total": 20, "producer.record.error.total": 0},
        gauges=PRODUCER,
    ),
    Doing(
        name="throttled",
        late=2,
        totals={"producer.record.send.total": 40, "producer.record.error.total": 0.01},
        gauges=PRODUCER | {"producer.produce.throttle.time.max": 1500.0},
        version="3.9.1",
    ),
    Doing(
        name="keeps-up",
        late=1,
        totals={f"{FETCH}.records.consumed.total": 50, "consumer.coordinator.rebalance.total": 0},
        gauges=CONSUMER,
        group="well",
    ),
    Doing(
        name="lags",
        late=3,
        totals={f"{FETCH}.records.consumed.total": 10, "consumer.coordinator.rebalance.total": 1 / 600},
        gauges=CONSUMER | {f"{FETCH}.records.lag.max": 50_000.0},
        group="behind",
    ),
    Doing(
        name="poll-bound",
        late=4,
        totals={f"{FETCH}.records.consumed.total": 5, "consumer.coordinator.rebalance.total": 0},
        gauges=CONSUMER | {"consumer.poll.idle.ratio.avg": 0.02},
        group="bound",
    ),
)


def samples() -> Iterator[Sample]:
    """A sample of each series a minute; counters have what was pushed until then."""
    unit = MetricName(name="", type=MetricType.GAUGE, unit="")
    for minute in range(MINUTES + 1):
        at = time_field(round(1000 * (END_S - 60 * (MINUTES - minute))))
        for doing in DOINGS:
            labels = doing.labels()
            pushed_s = 300 * ((minute + 600 - doing.late) // 5)
            role = "consumer" if doing.group else "producer"
            for name, per_second in {**doing.totals, f"{role}.connection.creation.total": 0.0}.items():
                yield (series(name), labels, unit, ""), number_sample(per_second * pushed_s, at)
            for name, value in doing.gauges.items():
                yield (series(name), labels, unit, ""), number_sample(value, at)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Prometheus() as prometheus:
        writer = RemoteWriter(RemoteWriteConfig(url=prometheus.write_url, version="1.0"))
        writer.open()
        assert writer.write(list(samples())) is None
        writer.close()
        yield prometheus.url


def expanded(expression: str) -> str:
    """The expression with all variables at All, and rates over 30 minutes."""
    text = re.sub(r"=~\"\$\w+\"", '=~".*"', expression).replace("$window", "30m")
    assert "$" not in text, text
    return text


def asked(url: str, expression: str) -> list[dict[str, Any]]:
    with httpx.Client(trust_env=False, timeout=60) as http:
        parameters = {"query": expanded(expression), "time": str(END_S)}
        answer = http.get(f"{url}/api/v1/query", params=parameters)
    assert answer.status_code == httpx.codes.OK, (expression, answer.text)
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


def panel(board: str, title: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = (one for one in DASHBOARDS[board]["panels"] if one["title"] == title and "targets" in one)
    return found


def shown(url: str, board: str, title: str, label: str | None = None) -> list[tuple[str, float]]:
    """The value of each series of a panel's queries, with one of its labels."""
    return [
        (one["metric"].get(label or "", ""), float(one["value"][1]))
        for target in panel(board, title)["targets"]
        for one in asked(url, target["expr"])
    ]


@pytest.mark.parametrize("board", BOARDS)
def test_every_query_is_answered_and_most_find_something(url: str, board: str) -> None:
    empty = {
        one["title"]
        for one in DASHBOARDS[board]["panels"]
        for target in one.get("targets", ())
        if not asked(url, target["expr"])
    }
    # These clients do not send all metrics.
    missing = {
        "Bytes sent", "Retries", "Wait before sending", "Time between polls", "Fetch latency",
        "Commit latency", "Connections opened", "Records that failed", "Produce latency", "Request latency",
    }  # fmt: skip
    assert empty <= missing | {"Throttling"}


def test_numbers_name_how_many_clients_are_in_trouble(url: str) -> None:
    board = "prometheus-fleet"
    found = {
        title: shown(url, board, title)[0][1]
        for title in (
            "Live clients", "Client ids", "Versions", "Throttled clients", "Groups behind",
            "Poll-bound groups",
        )
    }  # fmt: skip
    assert found == {
        "Live clients": 5,
        "Client ids": 5,
        "Versions": 2,
        "Throttled clients": 1,
        "Groups behind": 1,
        "Poll-bound groups": 1,
    }


def test_the_worst_come_first_and_lead_to_their_page(url: str) -> None:
    board = "prometheus-fleet"
    assert shown(url, board, "Lag by group", "group_id")[0] == ("behind", 50_000)
    assert shown(url, board, "Throttling", "client_id") == [("throttled", 1500)]
    assert shown(url, board, "Poll idle ratio, least", "client_id")[0] == ("poll-bound", 0.02)
    for title, label, expected in (
        ("Failed records an hour", "client_id", ("throttled", 36)),
        ("Rebalances an hour, of the member with the most", "group_id", ("behind", 6)),
    ):
        ((name, value),) = shown(url, board, title, label)
        assert name == expected[0]
        assert value == pytest.approx(expected[1], rel=0.2)
    links = str(panel(board, "Throttling")["fieldConfig"]["overrides"])
    assert "/d/kct-prom-one-client?" in links
    assert "var-client_id=${__data.fields.client_id:percentencode}" in links


def test_rates_are_those_of_the_clients(url: str) -> None:
    ((_, sent),) = shown(url, "prometheus-producers", "Records sent", "client_software_name")
    assert sent == pytest.approx(60, rel=0.05)
    consumed = dict(shown(url, "prometheus-consumers", "Records consumed by group", "group_id"))
    assert consumed == {
        "well": pytest.approx(50, rel=0.2),
        "behind": pytest.approx(10, rel=0.2),
        "bound": pytest.approx(5, rel=0.2),
    }


def test_one_client_is_beside_the_median_of_its_software(url: str) -> None:
    lag = [value for _, value in shown(url, "prometheus-one-client", "Records lag")]
    assert sorted(lag) == [10, 10, 10, 50_000]
