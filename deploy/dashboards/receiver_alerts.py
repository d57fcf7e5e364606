"""Owns the alert rules of Prometheus for the receiver's own metrics (docs/receiver-metrics.md).

Each has a summary, a description and a runbook that says what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deploy.dashboards.runbooks import runbook_url

__all__ = ["prometheus_rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PrometheusRule:
    """An alert on the receiver's own metrics.

    Attributes:
        name: Its name.
        expression: PromQL: an alert for each series that it finds.
        lasts: For how long before it fires.
        severity: ``critical`` or ``warning``.
        summary: One line.
        description: What it means and what to do.
    """

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str
    description: str


def _grew(counter: str, minutes: int, *by: str) -> str:
    """PromQL that finds a counter that grew within some minutes, if only once.

    ``increase`` sees no step from no series to 1, as the first event of its labels makes it. So these grew
    too: a series with fewer samples than ``kafka_telemetry_ready``, which is in every scrape, and what a
    process counted that is younger than that. A hole in the scrapes makes nothing new of what is old.

    Args:
        counter: The counter.
        minutes: How far back to look.
        by: Labels by which it is told, beside job and instance.
    """
    return (
        f"sum by ({', '.join(('job', 'instance', *by))}) (increase({counter}[{minutes}m]) > 0 "
        f"or {counter} > 0 and count_over_time({counter}[{minutes}m])"
        f" < on (job, instance) group_left max by (job, instance) "
        f"(count_over_time(kafka_telemetry_ready[{minutes}m])) "
        f"or {counter} > 0 and on (job, instance) process_start_time_seconds > time() - {minutes} * 60)"
    )


_PROMETHEUS: Final = (
    _PrometheusRule(
        name="KafkaTelemetryNotReady",
        expression="kafka_telemetry_ready == 0 and kafka_telemetry_draining == 0",
        lasts="1m",
        severity="critical",
        summary="Receiver {{ .Labels.instance }} takes no clients",
        description="The broker behind a listener does not answer. GET /readyz says which; the log says why.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryDown",
        expression="up == 0 and on (job, instance) last_over_time(kafka_telemetry_ready[1d])",
        lasts="2m",
        severity="critical",
        summary="Receiver {{ .Labels.instance }} does not answer",
        description="It is dead, hangs, or does not let Prometheus in: clients may not reach their broker. "
        "Look for its process, its log and the target's error in Prometheus.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryConnectionsRefused",
        expression="sum by (job, instance, listener, reason) "
        '(rate(kafka_telemetry_connections_refused_total{reason!="gone"}[5m])) > 0',
        lasts="5m",
        severity="warning",
        summary="Receiver {{ .Labels.instance }} refuses connections ({{ .Labels.reason }})",
        description="upstream: the broker can't be reached. "
        "out_of_files: raise the limit on open files (two for each connection). "
        "limit: max_connections is too low, or somebody floods. "
        "limit_source_address, limit_principal: a peer is over its limits. "
        "proxy_protocol: a PROXY header is missing, wrong, or from somebody who may send none. "
        "tls_handshake: a client without TLS, or one side does not trust the other. "
        "handshake_timeout: somebody connects and goes no further. "
        "principal: no principal can be made of a client's certificate.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryInternalError",
        expression=_grew('kafka_telemetry_connections_closed_total{reason="internal_error"}', 15, "listener"),
        lasts="0m",
        severity="critical",
        summary="Receiver {{ .Labels.instance }} closed connections for a mistake of its own",
        description="The log has the trace: report it.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryProtocolErrors",
        expression="sum by (job, instance, listener, reason) "
        "(rate(kafka_telemetry_protocol_errors_total[15m])) > 0",
        lasts="15m",
        severity="warning",
        summary="Listener {{ .Labels.listener }} of {{ .Labels.instance }} is spoken to in something "
        "else than Kafka",
        description="A health check, a scanner, or a client with the wrong port or without TLS.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryInvalidPushes",
        expression=_grew(
            'kafka_telemetry_pushes_total{outcome="INVALID_RECORD"}', 60, "client_software_name"
        ),
        lasts="0m",
        severity="warning",
        summary="{{ .Labels.client_software_name }} pushes what is no OTLP",
        description="Such a client has turned its telemetry off until it is restarted. Look for its version.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryPushesTooLarge",
        expression=_grew(
            'kafka_telemetry_pushes_total{outcome="TELEMETRY_TOO_LARGE"}', 60, "client_software_name"
        ),
        lasts="0m",
        severity="warning",
        summary="{{ .Labels.client_software_name }} pushes more than telemetry.max_bytes",
        description="Ask these clients for fewer metrics by a subscription, or raise telemetry.max_bytes.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryPushesDropped",
        expression=_grew("kafka_telemetry_plugin_dropped_pushes_total", 15, "plugin", "reason"),
        lasts="0m",
        severity="critical",
        summary="Plugin {{ .Labels.plugin }} of {{ .Labels.instance }} loses pushes ({{ .Labels.reason }})",
        description="Its destination is away or too slow, and there is no room left. GET /v1/plugins "
        "says more.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryDeliveryLags",
        expression="max by (job, instance, plugin) (kafka_telemetry_plugin_lag_seconds) > 300",
        lasts="5m",
        severity="warning",
        summary="Plugin {{ .Labels.plugin }} of {{ .Labels.instance }} has not delivered for minutes",
        description="Its destination is away or too slow; pushes wait, on disk where there is a spool.",
    ),
    _PrometheusRule(
        name="KafkaTelemetrySpoolNearlyFull",
        expression="kafka_telemetry_plugin_spool_bytes / (kafka_telemetry_plugin_spool_max_bytes > 0) > 0.8",
        lasts="5m",
        severity="warning",
        summary="The spool of plugin {{ .Labels.plugin }} of {{ .Labels.instance }} is nearly full",
        description="When it is full, the oldest pushes are lost. Bring the destination back, or raise "
        "spool.max_bytes.",
    ),
    _PrometheusRule(
        name="KafkaTelemetrySpoolProblem",
        expression="kafka_telemetry_plugin_spool_problem == 1",
        lasts="1m",
        severity="critical",
        summary="Plugin {{ .Labels.plugin }} of {{ .Labels.instance }} can't use its spool",
        description="The disk is full, read-only or another's: memory alone holds what waits. GET "
        "/v1/plugins says why.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryPluginHangs",
        expression="max by (job, instance, plugin) (kafka_telemetry_plugin_call_seconds) > 60",
        lasts="1m",
        severity="warning",
        summary="Plugin {{ .Labels.plugin }} of {{ .Labels.instance }} hangs",
        description="One call lasts for more than a minute. Run it with isolation: process.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryAnsweredBeforeStored",
        expression=_grew("kafka_telemetry_pushes_answered_before_stored_total", 15),
        lasts="0m",
        severity="warning",
        summary="Receiver {{ .Labels.instance }} answers pushes before they are on disk",
        description="The disk of a plugin with delivery: spool_always is too slow.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryOverBudget",
        expression="rate(kafka_telemetry_overflowed_points_total[15m]) > 0",
        lasts="15m",
        severity="warning",
        summary="Clients of receiver {{ .Labels.instance }} are over a series budget",
        description="`kafka-telemetry series` says who.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryInstancesEvicted",
        expression="rate(kafka_telemetry_instances_evicted_total[15m]) > 0",
        lasts="15m",
        severity="warning",
        summary="Receiver {{ .Labels.instance }} forgets client instances for want of room",
        description="More than telemetry.max_instances: clients are asked again needlessly.",
    ),
    _PrometheusRule(
        name="KafkaTelemetryCertificateEnds",
        expression="kafka_telemetry_tls_certificate_expiry_seconds - time() < 14 * 86400",
        lasts="1h",
        severity="warning",
        summary="A certificate of listener {{ .Labels.listener }} of {{ .Labels.instance }} ends within "
        "two weeks",
        description="Put new files in place; the receiver follows them without a restart.",
    ),
)


def prometheus_rules() -> dict[str, object]:
    """The file of rules for Prometheus."""
    return {
        "groups": [
            {
                "name": "kafka-client-telemetry-receiver",
                "rules": [
                    {
                        "alert": rule.name,
                        "expr": rule.expression,
                        "for": rule.lasts,
                        "labels": {"severity": rule.severity},
                        "annotations": {
                            "summary": rule.summary,
                            "description": rule.description,
                            "runbook_url": runbook_url(rule.name),
                        },
                    }
                    for rule in _PROMETHEUS
                ],
            }
        ]
    }
