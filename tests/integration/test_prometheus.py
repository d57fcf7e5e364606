"""Real clients, a real sidecar and a real Prometheus: PromQL shows what clients did."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from plugins._shared.cumulative import Kind
from plugins.prometheus.names import metric_name
from receiver.catalogue import CATALOGUE, MetricKind
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from receiver.plugin import Push
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until
from tests.testbed.prometheus import Prometheus
from tests.testbed.sidecar import Sidecar, config_for
from tests.unit.host.support import wait_for
from tests.unit.plugins._shared.cumulative.support import (
    CUMULATIVE,
    SECOND,
    counter,
    gauge,
    metrics_data,
    number,
)
from tests.unit.plugins._shared.cumulative.test_histograms import exponential, histogram
from tests.unit.plugins.prometheus.support import push

TOPIC = "prometheus"
INTERVAL_MS = 1000
#: Longer than a scrape interval of the testbed's Prometheus, but short for the tests.
LINGER_S = 5
TIMEOUT_S = 300.0
RATE = 40.0
RECORDS = 800

#: Allows short names, which are not Kafka's.
ANY_NAME: dict[str, object] = {"type": "prometheus", "metric_prefixes": [""]}

#: Labels that distinguish the paths to Prometheus.
JOBS = ("scraped", "written_1", "written_2")
SENT = "org_apache_kafka_producer_topic_record_send_total"


@dataclass(frozen=True)
class Setup:
    prometheus: Prometheus
    sidecar: Sidecar

    def wait_for(self, promql: str) -> None:
        """Wait until a query has a result."""
        wait_until(lambda: self.prometheus.value(promql) is not None, timeout_s=TIMEOUT_S, what=f"{promql}")


@pytest.fixture(scope="module")
def setup(broker: KafkaBroker) -> Iterator[Setup]:
    bind = f"{LOOPBACK}:{free_port()}"
    with Prometheus(scrape=[bind]) as prometheus:
        settings = config_for(broker)
        settings["plugins"] = [
            {"type": "prometheus", "name": "scraped", "job": "scraped", "bind": bind, "linger_s": LINGER_S},
            *(
                {
                    "type": "prometheus",
                    "name": job,
                    "job": job,
                    "remote_write": {"url": prometheus.write_url, "version": version},
                }
                for job, version in (("written_1", "1.0"), ("written_2", "2.0"))
            ),
        ]
        with Sidecar(settings) as sidecar:
            broker.create_topic(TOPIC)
            sidecar.put_subscription("all", ["*"], INTERVAL_MS)
            yield Setup(prometheus, sidecar)


@dataclass(frozen=True)
class Finished:
    """A producer that connected, pushed and closed.

    Attributes:
        instance: Its client instance id.
        records: How many records it sent.
    """

    instance: str
    records: int


@pytest.fixture(scope="module")
def finished(setup: Setup) -> Finished:
    with JavaClient(
        Mode.PRODUCER,
        bootstrap=setup.sidecar.bootstrap(),
        topic=TOPIC,
        client_id="counted",
        rate=RATE,
        count=RECORDS,
    ) as producer:
        producer.wait_for_records(int(5 * RATE))
        wait_until(
            lambda: producer.client_instance_id is not None, timeout_s=TIMEOUT_S, what="the instance id"
        )
        instance = producer.client_instance_id
        assert instance is not None
        for job in JOBS:
            rate = f'rate({SENT}{{instance="{instance}", job="{job}"}}[5s])'
            setup.wait_for(f"{0.9 * RATE} < {rate} < {1.1 * RATE}")
        producer.wait_for_records(RECORDS)
        # A Java producer that is idle at its close sends no terminating push. So wait until all
        # counts were pushed.
        time.sleep(3 * INTERVAL_MS / 1000)
        producer.stop()
        return Finished(instance, producer.records)


@pytest.mark.parametrize("job", JOBS)
def test_a_counter_equals_what_the_client_did(setup: Setup, finished: Finished, job: str) -> None:
    series = f'{SENT}{{instance="{finished.instance}", job="{job}"}}'
    # The last push is scraped within a scrape interval.
    setup.wait_for(f"last_over_time({series}[5m]) == {finished.records}")


@pytest.mark.parametrize("job", ["scraped", "written_2"])
def test_a_counter_includes_its_first_push(setup: Setup, finished: Finished, job: str) -> None:
    series = f'{SENT}{{instance="{finished.instance}", job="{job}"}}'
    # Prometheus inserts a zero at the start, so that the first push is an increase too.
    assert setup.prometheus.value(f"min_over_time({series}[5m])") == 0
    # PromQL extrapolates to the ends of the window, by half a push interval or so at each.
    increase = setup.prometheus.value(f"increase({series}[5m])")
    assert increase == pytest.approx(finished.records, rel=0.15)


@pytest.mark.parametrize("job", JOBS)
def test_a_series_ends_with_its_client(setup: Setup, finished: Finished, job: str) -> None:
    everything = f'{{instance="{finished.instance}", job="{job}"}}'
    wait_until(
        lambda: setup.prometheus.query(everything) == [],
        timeout_s=LINGER_S + 10,
        what=f"the end of {everything}",
    )
    assert setup.prometheus.value(f"count(last_over_time({everything}[5m]))") is not None


def test_scraped_metrics_have_a_type_and_a_unit(setup: Setup, finished: Finished) -> None:
    assert finished.records
    with JavaClient(Mode.CONSUMER, bootstrap=setup.sidecar.bootstrap(), topic=TOPIC, client_id="typed"):
        latency = "org_apache_kafka_consumer_fetch_manager_fetch_latency_avg_milliseconds"
        setup.wait_for(f'{latency}{{client_id="typed", job="scraped"}}')
        (told,) = setup.prometheus.metadata()[latency]
        assert (told["type"], told["unit"]) == ("gauge", "milliseconds")
        (told,) = setup.prometheus.metadata()["org_apache_kafka_consumer_connection_creation"]
        assert told["type"] == "counter"
        (info,) = setup.prometheus.query('target_info{job="scraped", group_member_id!=""}')
        assert info.labels["client_source_address"] == LOOPBACK


def test_the_metrics_of_every_client_arrive(setup: Setup) -> None:
    with contextlib.ExitStack() as running:
        for kind in (LibrdkafkaClient, FranzClient):
            running.enter_context(
                kind(Mode.PRODUCER, bootstrap=setup.sidecar.bootstrap(), topic=TOPIC, client_id=kind.language)
            )
        for kind in (LibrdkafkaClient, FranzClient):
            for job in JOBS:
                connections = "org_apache_kafka_producer_connection_creation_total"
                series = f'{connections}{{client_id="{kind.language}", job="{job}"}}'
                # librdkafka does not count connections from before its first push.
                setup.wait_for(f"sum(last_over_time({series}[1m])) >= 0")


def test_a_client_that_dies_ends_after_three_intervals(setup: Setup) -> None:
    with JavaClient(
        Mode.PRODUCER, bootstrap=setup.sidecar.bootstrap(), topic=TOPIC, client_id="killed"
    ) as producer:
        producer.wait_for_records(20)
        for job in JOBS:
            setup.wait_for(f'{SENT}{{client_id="killed", job="{job}"}}')
        producer.kill()
        for job in JOBS:
            # Three intervals, and the interval of the plugin's check.
            wait_until(
                lambda job=job: setup.prometheus.query(f'{SENT}{{client_id="killed", job="{job}"}}') == [],  # type: ignore[misc]
                timeout_s=120,
                what=f"the end of a silent client, {job}",
            )


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_nothing_counts_twice_while_prometheus_is_away(version: str) -> None:
    with Prometheus() as prometheus:
        way = {"url": prometheus.write_url, "version": version}
        host = PluginHost(
            load_plugins(
                [
                    {
                        **ANY_NAME,
                        "remote_write": way,
                        "delivery": "memory",
                        "retry": {"initial_ms": 100, "max_ms": 300},
                        "batch": {"linger_ms": 0, "max_items": 5},
                    }
                ]
            )
        )
        pushes = [recent(n) for n in range(40)]
        host.start()
        for n, item in enumerate(pushes):
            if n == 10:
                wait_for(lambda: host.statistics()[0].exported_pushes == 10)
                prometheus.stop()
            host.offer(item)
        wait_for(lambda: host.statistics()[0].failures >= 3)
        prometheus.start()
        wait_for(lambda: host.statistics()[0].exported_pushes == len(pushes), timeout_s=120)
        assert host.stop(10)
        (statistics,) = host.statistics()
        assert statistics.rejected_points == 0
        assert prometheus.value("last_over_time(c_total[5m])") == 7 * len(pushes)
        assert prometheus.value("resets(c_total[5m])") == 0
        assert prometheus.value("count_over_time(c_total[5m])") == len(pushes) + (version == "2.0")


def recent(n: int, *metrics: Metric) -> Push:
    """Return the nth push of a client that started 40 s ago and pushes every second."""
    one = push(*(metrics or (counter("c", number(7, since=n, at=n + 1)),)), at=n + 1)
    received_at_ns = time.time_ns() // SECOND * SECOND - (40 - n) * SECOND
    return replace(one, context=replace(one.context, received_at_ns=received_at_ns))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_histograms_are_native_in_prometheus(version: str) -> None:
    with Prometheus() as prometheus:
        way = {"url": prometheus.write_url, "version": version}
        host = PluginHost(load_plugins([{**ANY_NAME, "remote_write": way, "delivery": "memory"}]))
        host.start()
        for n in range(3):
            metrics = (
                histogram([1, 0, 1], at=n + 1, sum=7.0),
                exponential(2, 3, [2, 0, 1], at=n + 1, sum=5.0),
            )
            host.offer(recent(30 + n, *metrics))
        assert host.stop(20)
        (statistics,) = host.statistics()
        assert (statistics.exported_pushes, statistics.rejected_points) == (3, 0)
        assert prometheus.value("last_over_time(h_count[5m])") == 6
        assert prometheus.value("last_over_time(h_sum[5m])") == 21
        assert prometheus.value('last_over_time(h_bucket{le="5.0"}[5m])') == 3
        assert prometheus.value("histogram_count(last_over_time(e[5m]))") == 9
        assert prometheus.value("histogram_sum(last_over_time(e[5m]))") == 15
        # The first bucket is from 2 ** (3 / 4) to 2.
        median = prometheus.value("histogram_quantile(0.5, last_over_time(e[5m]))")
        assert median is not None
        assert 2**0.75 < median < 2


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_two_clients_may_use_one_name_with_two_types(version: str) -> None:
    bind = f"{LOOPBACK}:{free_port()}"
    with Prometheus(scrape=[bind]) as prometheus:
        way = {"url": prometheus.write_url, "version": version}
        written: dict[str, object] = {**ANY_NAME, "remote_write": way, "job": "written"}
        scraped: dict[str, object] = {**ANY_NAME, "name": "scraped", "bind": bind, "job": "scraped"}
        host = PluginHost(load_plugins([{**item, "delivery": "memory"} for item in (written, scraped)]))
        host.start()
        rivals = (
            *(gauge(name, number(1, at=1)) for name in ("x", "y.total", "h.count")),
            counter("z", number(1, at=1)),
        )
        metrics = (
            *(counter(name, number(2, at=1)) for name in ("x", "y")),
            histogram([1, 1, 1], at=1),
            gauge("z.total", number(2, at=1)),
        )
        for instance, told in (("rival", rivals), ("other", metrics)):
            resource = {"client_instance_id": instance}
            one = push(*told, at=1, instance=instance, resource=resource, interval_ms=60_000)
            now_ns = time.time_ns()
            host.offer(replace(one, context=replace(one.context, received_at_ns=now_ns)))
        values = {"x_total": 2, "y_total": 2, "z_total": 2, "h_count": 3, "target_info": 1}
        for job in ("written", "scraped"):
            for name, value in values.items():
                series = f'{name}{{instance="other", job="{job}"}}'
                wait_until(
                    lambda series=series, value=value: prometheus.value(series) == value,  # type: ignore[misc]
                    timeout_s=TIMEOUT_S,
                    what=series,
                )
        assert host.stop(10)
        assert [plugin.rejected_points for plugin in host.statistics()] == [0, 0]


def test_names_are_those_of_prometheus_own_otlp_endpoint() -> None:
    """Every metric has the name that Prometheus's own OTLP endpoint gives it."""
    odd = [
        ("a..b__c", "", Kind.GAUGE),
        ("9lives", "", Kind.GAUGE),
        ("wait.ns.total", "ns", Kind.COUNTER),
        ("sent.total.bytes", "By", Kind.COUNTER),
        ("idle.ratio", "1", Kind.GAUGE),
        ("done", "1", Kind.COUNTER),
        ("speed", "furlong/fortnight", Kind.GAUGE),
        ("records", "{record}/s", Kind.GAUGE),
    ]
    kinds = {MetricKind.GAUGE: Kind.GAUGE, MetricKind.SUM: Kind.COUNTER}
    standard = [
        (metric.name, metric.unit or "", kinds[metric.kind]) for metric in CATALOGUE if metric.kind in kinds
    ]
    point = number(1.0, at=0) | {"time_unix_nano": time.time_ns()}
    metrics = [
        gauge(name, point, unit=unit)
        if kind is Kind.GAUGE
        else counter(name, point, unit=unit, temporality=CUMULATIVE)
        for name, unit, kind in (*odd, *standard)
    ]
    with Prometheus() as prometheus:
        prometheus.write_otlp(metrics_data(*metrics))
        named = {item.labels["__name__"] for item in prometheus.query('{__name__=~".+"}')}
    named -= {"target_info"}
    ours = {metric_name(name, unit, kind).name for name, unit, kind in (*odd, *standard)}
    assert ours == named


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_check_of_the_destination_writes_no_series(version: str) -> None:
    with Prometheus() as prometheus:
        way = {"url": prometheus.write_url, "version": version}
        (hosted,) = load_plugins([{**ANY_NAME, "remote_write": way}])
        assert str(hosted.plugin.check_destination(30)).endswith(f"takes remote write {version}")
