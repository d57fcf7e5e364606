"""Prometheus alert rules on the receiver's own metrics.

Each rule has a summary, a description and a runbook that says what to do.
"""

from __future__ import annotations

from typing import Final

from deploy.dashboards.prometheus_rule import PrometheusRule


def _grew(counter: str, minutes: int, *by: str) -> str:
    """Return PromQL that finds counters that grew in a time, even once.

    ``increase`` misses the step from no series to 1, which the first event with its labels makes.
    Two more conditions find it: the series has fewer samples than ``kafka_telemetry_ready``, which
    is in every scrape, or the process started within the time. A gap in the scrapes affects both
    series, so it does not fire the alert. The labels ``by`` stay beside job and instance.
    """
    return (
        f"sum by ({', '.join(('job', 'instance', *by))}) (increase({counter}[{minutes}m]) > 0 "
        f"or {counter} > 0 and count_over_time({counter}[{minutes}m])"
        f" < on (job, instance) group_left max by (job, instance) "
        f"(count_over_time(kafka_telemetry_ready[{minutes}m])) "
        f"or {counter} > 0 and on (job, instance) process_start_time_seconds > time() - {minutes} * 60)"
    )


def _jumped(counter: str, times: int, least: int, *by: str) -> str:
    """Return PromQL that finds rates that are so many times those of the day before.

    Args:
        least: The least rate in a second.
        by: The labels that stay beside job.
    """
    labels = ", ".join(("job", *by))
    now = f"sum by ({labels}) (rate({counter}[10m]))"
    before = f"sum by ({labels}) (rate({counter}[1d] offset 30m))"
    return f"{now} > {least} and {now} > {times} * {before}"


RECEIVER_RULES: Final = (
    PrometheusRule(
        name="KafkaTelemetryNotReady",
        expression="kafka_telemetry_ready == 0 and kafka_telemetry_draining == 0",
        lasts="1m",
        severity="critical",
        summary="Receiver {{ .Labels.instance }} accepts no clients",
        description="The broker behind a listener does not answer. GET /readyz names the listener; "
        "the log has the reason.",
    ),
    PrometheusRule(
        name="KafkaTelemetryDown",
        expression="up == 0 and on (job, instance) last_over_time(kafka_telemetry_ready[1d])",
        lasts="2m",
        severity="critical",
        summary="Receiver {{ .Labels.instance }} does not answer",
        description="It crashed, hangs, or refuses Prometheus. Clients may not reach their broker. "
        "Check the process, its log and the target's error in Prometheus.",
    ),
    PrometheusRule(
        name="KafkaTelemetryConnectionsRefused",
        # A probe without TLS every ten seconds is below it. A client that can't connect, and tries
        # again every second as Kafka's default is, is above it.
        expression="sum by (job, instance, listener, reason) "
        '(rate(kafka_telemetry_connections_refused_total{reason!="gone"}[5m])) > 0.2',
        lasts="5m",
        summary="Receiver {{ .Labels.instance }} refuses more than 12 connections a minute "
        "({{ .Labels.reason }})",
        description="upstream: the broker can't be reached. "
        "out_of_files: raise the limit on open files (two for each connection). "
        "limit: max_connections is too low, or a peer floods the listener. "
        "limit_source_address, limit_principal: an address or principal exceeds its limits. "
        "proxy_protocol: a PROXY header is missing, malformed, or from an address that is not trusted. "
        "tls_handshake: the client does not use TLS, or one side does not trust the other. "
        "handshake_timeout: a peer connects and does not complete the handshake. "
        "principal: no mapping rule fits the client's certificate.",
    ),
    PrometheusRule(
        name="KafkaTelemetryConnectionStorm",
        expression=_jumped("kafka_telemetry_connections_opened_total", 4, 20, "instance", "listener"),
        lasts="10m",
        summary="Clients open far more connections to {{ .Labels.instance }} than the day before",
        description="Clients reconnect in a loop, or make a new client for each message. "
        "`kafka-telemetry connections --closed --by client_id --order-by connections` names them.",
    ),
    PrometheusRule(
        name="KafkaTelemetryTrafficJumps",
        expression=_jumped("kafka_telemetry_traffic_bytes_total", 5, 1_000_000, "principal"),
        lasts="10m",
        summary="The traffic of {{ .Labels.principal }} is five times that of the day before",
        description="A client reads a topic again, or a new one has started. "
        "`kafka-telemetry connections --order-by last_minute` names it.",
    ),
    PrometheusRule(
        name="KafkaTelemetryCredentialUnused",
        # Every receiver of a cluster sees some of a principal's connections.
        expression="time() - max by (job, principal) (kafka_telemetry_principal_last_used_timestamp_seconds) "
        "> 30 * 86400",
        summary="Nobody has used {{ .Labels.principal }} for 30 days",
        description="Remove the credential, or its program has stopped.",
    ),
    PrometheusRule(
        name="KafkaTelemetryCredentialFromNewNetwork",
        expression=_grew("kafka_telemetry_principal_new_networks_total", 60, "principal"),
        summary="{{ .Labels.principal }} is used from a new network",
        description="Its program has moved, or another one has its credential. "
        "`kafka-telemetry connections --principal PRINCIPAL --by address` has the addresses.",
    ),
    PrometheusRule(
        name="KafkaTelemetryInternalError",
        expression=_grew('kafka_telemetry_connections_closed_total{reason="internal_error"}', 15, "listener"),
        severity="critical",
        summary="Receiver {{ .Labels.instance }} closed connections after an internal error",
        description="The log has the stack trace. Report it with the log.",
    ),
    PrometheusRule(
        name="KafkaTelemetryClosesForMemory",
        expression=_grew('kafka_telemetry_connections_closed_total{reason="held_bytes"}', 15, "listener"),
        summary="Receiver {{ .Labels.instance }} closed connections because too many bytes wait",
        description="More consumers read slowly at once than limits.max_held_bytes has room for, or a peer "
        "attacks. The log names the addresses. Raise the limit and the container's memory together.",
    ),
    PrometheusRule(
        name="KafkaTelemetryProtocolErrors",
        expression="sum by (job, instance, listener, reason) "
        "(rate(kafka_telemetry_protocol_errors_total[15m])) > 0",
        lasts="15m",
        summary="Listener {{ .Labels.listener }} of {{ .Labels.instance }} receives other protocols "
        "than Kafka",
        description="The peer is a health check, a scanner, or a client with the wrong port or without TLS.",
    ),
    PrometheusRule(
        name="KafkaTelemetryInvalidPushes",
        expression=_grew(
            'kafka_telemetry_pushes_total{outcome="INVALID_RECORD"}', 60, "client_software_name"
        ),
        summary="{{ .Labels.client_software_name }} pushes what is no OTLP",
        description="These clients turn telemetry off until they restart. Check their version.",
    ),
    PrometheusRule(
        name="KafkaTelemetryPushesTooLarge",
        expression=_grew(
            'kafka_telemetry_pushes_total{outcome="TELEMETRY_TOO_LARGE"}', 60, "client_software_name"
        ),
        summary="{{ .Labels.client_software_name }} pushes more than telemetry.max_bytes",
        description="Ask these clients for fewer metrics by a subscription, or raise telemetry.max_bytes.",
    ),
    PrometheusRule(
        name="KafkaTelemetryPushesDropped",
        expression=_grew("kafka_telemetry_plugin_dropped_pushes_total", 15, "plugin", "reason"),
        severity="critical",
        summary="Plugin {{ .Labels.plugin }} of {{ .Labels.instance }} loses pushes ({{ .Labels.reason }})",
        description="Its destination is unreachable or too slow, and its queue is full. GET /v1/plugins "
        "has the last error.",
    ),
    PrometheusRule(
        name="KafkaTelemetryCircuitOpen",
        expression="max by (job, instance, plugin) "
        '(kafka_telemetry_plugin_circuit{state=~"open|half_open"}) == 1',
        lasts="2m",
        summary="The destination of plugin {{ .Labels.plugin }} of {{ .Labels.instance }} takes no pushes",
        description="It can't be reached, or refuses all pushes, for example because of a wrong token. "
        "Pushes wait. `kafka-telemetry plugins` has the error, and how long there is room for more.",
    ),
    PrometheusRule(
        name="KafkaTelemetryDeliveryLags",
        expression="max by (job, instance, plugin) (kafka_telemetry_plugin_lag_seconds) > 300",
        lasts="5m",
        summary="Plugin {{ .Labels.plugin }} of {{ .Labels.instance }} has not delivered for minutes",
        description="Its destination is unreachable or too slow. Pushes wait in memory, or on disk if "
        "the plugin has a spool.",
    ),
    PrometheusRule(
        name="KafkaTelemetrySpoolNearlyFull",
        expression="kafka_telemetry_plugin_spool_bytes / (kafka_telemetry_plugin_spool_max_bytes > 0) > 0.8",
        lasts="5m",
        summary="The spool of plugin {{ .Labels.plugin }} of {{ .Labels.instance }} is nearly full",
        description="A full spool drops its oldest pushes. Repair the destination, or raise spool.max_bytes.",
    ),
    PrometheusRule(
        name="KafkaTelemetrySpoolProblem",
        expression="kafka_telemetry_plugin_spool_problem == 1",
        lasts="1m",
        severity="critical",
        summary="Plugin {{ .Labels.plugin }} of {{ .Labels.instance }} can't use its spool",
        description="The disk is full, read-only, or owned by another user. Pushes wait in memory only. GET "
        "/v1/plugins has the reason.",
    ),
    PrometheusRule(
        name="KafkaTelemetryPluginHangs",
        expression="max by (job, instance, plugin) (kafka_telemetry_plugin_call_seconds) > 60",
        lasts="1m",
        summary="Plugin {{ .Labels.plugin }} of {{ .Labels.instance }} hangs",
        description="One call has lasted for more than a minute. Run the plugin with isolation: process.",
    ),
    PrometheusRule(
        name="KafkaTelemetryPushesNotStored",
        expression=_grew("kafka_telemetry_pushes_not_stored_total", 15),
        summary="Receiver {{ .Labels.instance }} refuses pushes that it can't store",
        description="The disk of a plugin with delivery: spool_always is full, fails or is too slow. "
        "Clients go on with their next push.",
    ),
    PrometheusRule(
        name="KafkaTelemetryOverBudget",
        expression="rate(kafka_telemetry_overflowed_points_total[15m]) > 0",
        lasts="15m",
        summary="Clients of receiver {{ .Labels.instance }} exceed a series budget",
        description="`kafka-telemetry series` lists these clients.",
    ),
    PrometheusRule(
        name="KafkaTelemetryInstancesEvicted",
        expression="rate(kafka_telemetry_instances_evicted_total[15m]) > 0",
        lasts="15m",
        summary="Receiver {{ .Labels.instance }} evicts client instances at its bound",
        description="There are more client instances than telemetry.max_instances. Evicted clients have "
        "to ask again.",
    ),
    PrometheusRule(
        name="KafkaTelemetrySubscriptionsStale",
        expression="kafka_telemetry_subscriptions_stale == 1",
        lasts="5m",
        summary="Receiver {{ .Labels.instance }} can't follow the changes of its subscriptions",
        description="The last known subscriptions stay in force. A file has a mistake, or the brokers that "
        "keep them don't answer or refuse the login. GET /readyz names the place, and the log each mistake.",
    ),
    PrometheusRule(
        name="KafkaTelemetryWarns",
        # The other kinds have alerts of their own.
        expression="kafka_telemetry_warnings"
        '{kind=~"crossed|bypass|hidden_telemetry|scattered|subscription|clock|worker"} > 0',
        lasts="15m",
        summary="Receiver {{ .Labels.instance }} works, and warns of: {{ .Labels.kind }}",
        description="GET /readyz and `kafka-telemetry status` say what to do. bypass: clients pass by the "
        "receiver. crossed: its upstreams are. hidden_telemetry: the broker's own telemetry has no effect. "
        "scattered: Kafka's tools change the subscriptions of one receiver alone. subscription: none is "
        "active. clock: this machine's differs from those of clients. worker: a thread has ended.",
    ),
    PrometheusRule(
        name="KafkaTelemetryReloadRefused",
        expression="kafka_telemetry_config_last_reload_successful == 0",
        lasts="5m",
        summary="Receiver {{ .Labels.instance }} refused a changed configuration",
        description="The configuration before it stays in force. GET /readyz and the log name the key, the "
        "value and the fix.",
    ),
    PrometheusRule(
        name="KafkaTelemetryCertificateEnds",
        expression="kafka_telemetry_tls_certificate_expiry_timestamp_seconds - time() < 14 * 86400",
        lasts="1h",
        summary="A certificate of listener {{ .Labels.listener }} of {{ .Labels.instance }} expires within "
        "two weeks",
        description="Replace the files. The receiver reloads them without a restart.",
    ),
)
