"""Examines what brokers tell of their telemetry plugins, for bridges."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from receiver.doctor.findings import Area, Finding, failed, ok, unknown, warning
from receiver.settings.model import ReceiverSettings
from receiver.store.kafka_cluster import Cluster
from receiver.store.store import StoreError

_PACKAGE: Final = "kafkaclienttelemetry.bridge."
_ENTRIES: Final = frozenset({_PACKAGE + "BridgeReporter", _PACKAGE + "BridgeExporter"})
_JMX: Final = "org.apache.kafka.common.metrics.JmxReporter"
#: Reporters that take no client telemetry: they can't harm it.
_HARMLESS: Final = frozenset(
    {
        _JMX,
        "com.linkedin.kafka.cruisecontrol.metricsreporter.CruiseControlMetricsReporter",
        "io.confluent.metrics.reporter.ConfluentMetricsReporter",
        "io.strimzi.kafka.metrics.KafkaPrometheusMetricsReporter",
        "io.strimzi.kafka.metrics.prometheus.ServerKafkaMetricsReporter",
    }
)
_MAX_SHOWN: Final = 5


async def bridge_findings(settings: ReceiverSettings) -> list[Finding]:
    """Return what ``metric.reporters`` of each broker shows.

    Nothing without ``bridge``.
    """
    if settings.bridge is None:
        return []
    kafka = settings.subscriptions.kafka
    if settings.subscriptions.store != "kafka" or kafka is None:
        fix = "set subscriptions.store to kafka: the brokers of bridges ask for what their cluster says"
        return [
            unknown(Area.BROKER, "reporters", "brokers with bridges", "the cluster is not configured", fix)
        ]

    def read() -> Mapping[int, Mapping[str, str]]:
        cluster = Cluster(kafka)
        try:
            return cluster.read_reporters()
        finally:
            cluster.close()

    try:
        found = await asyncio.to_thread(read)
    except StoreError as error:
        fix = "correct subscriptions.kafka, or give its principal the right DescribeConfigs on the cluster"
        return [failed(Area.BROKER, "reporters", "brokers with bridges", str(error), fix)]
    return [
        finding for node_id, values in sorted(found.items()) for finding in reporter_findings(node_id, values)
    ]


def reporter_findings(node_id: int, values: Mapping[str, str]) -> list[Finding]:
    """Return what a broker's reporters do to client telemetry.

    Args:
        values: Its ``metric.reporters``, and ``auto.include.jmx.reporter`` before Kafka 4.0.
    """
    subject = f"metric.reporters of broker {node_id}"
    names = [name.strip() for name in values.get("metric.reporters", "").split(",") if name.strip()]
    findings = []
    if not _ENTRIES.intersection(names):
        seen = f"has no bridge: {_listed(names)}"
        fix = f"add {_PACKAGE}BridgeExporter, before Kafka 4.2 {_PACKAGE}BridgeReporter (docs/bridge.md)"
        findings.append(warning(Area.BROKER, "bridge", subject, seen, fix))
    if len(_ENTRIES.intersection(names)) > 1:
        seen = "has both entries of the bridge, so each push is sent twice"
        fix = "keep BridgeExporter; before Kafka 4.2 keep BridgeReporter"
        findings.append(warning(Area.BROKER, "bridge", subject, seen, fix))
    others = [name for name in names if name not in _ENTRIES | _HARMLESS]
    if others:
        seen = f"has other plugins: {_listed(others)}. One that throws or returns null stops the telemetry "
        fix = "make sure that it takes no client telemetry, or that it never fails"
        findings.append(
            warning(Area.BROKER, "neighbours", subject, f"{seen}of all clients of this broker", fix)
        )
    if _JMX not in names and values.get("auto.include.jmx.reporter", "false") != "true":
        seen = "lacks JmxReporter, so the broker has no metrics in JMX"
        findings.append(warning(Area.BROKER, "jmx", subject, seen, f"add {_JMX}, unless that is wanted"))
    return findings or [ok(Area.BROKER, "reporters", subject, f"has the bridge: {_listed(names)}")]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return (", ".join(names[:_MAX_SHOWN]) or "nothing") + more
