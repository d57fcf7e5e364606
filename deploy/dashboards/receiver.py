"""The dashboard *Receiver*: the sidecar's own health, from Prometheus."""

from __future__ import annotations

from deploy.dashboards.grafana import Dashboard
from deploy.dashboards.panels import Panel
from deploy.dashboards.receiver_panels import RATE, WHERE, ZERO, graph, none, now, receivers


def receiver() -> Dashboard:
    """Build it."""
    board = receivers(
        "kct-receiver",
        "Kafka clients: receiver",
        "The receivers themselves: readiness, traffic, refusals, delivery.",
    )
    board.row(
        "Now",
        now("Receivers ready", "Receivers that accept clients.", f"sum(kafka_telemetry_ready{{{WHERE}}})"),
        now("Not ready", "Receivers whose broker does not answer, or that shut down.",
             f"sum(1 - kafka_telemetry_ready{{{WHERE}}})", warnings={1: "orange"}),
        now("Open connections", "Of clients.", f"sum(kafka_telemetry_connections{{{WHERE}}})"),
        now("Client instances", "Known now.", f"sum(kafka_telemetry_instances{{{WHERE}}})"),
        now("Undelivered for", "The age of the oldest push that a destination has not received.",
             f"max(kafka_telemetry_plugin_lag_seconds{{{WHERE}}}) or {ZERO}", unit="s",
             warnings={300: "orange"}),
        now("Certificate ends", "The first of all certificates to expire; *no TLS* without any.",
             f"min(kafka_telemetry_tls_certificate_expiry_timestamp_seconds{{{WHERE}}}) * 1000",
             unit="dateTimeFromNow", nothing="no TLS"),
    )  # fmt: skip
    board.row(
        "Telemetry",
        _rates("Pushes by outcome", "Accepted, or the name of the Kafka error in the answer.",
               "kafka_telemetry_pushes_total", "outcome", "reqps"),
        _rates("Subscription requests by outcome", "GetTelemetrySubscriptions requests answered.",
               "kafka_telemetry_subscription_requests_total", "outcome", "reqps"),
        graph("Bytes of metrics", "Compressed by clients, and inflated.", "binBps", {
            "compressed": f"sum(rate(kafka_telemetry_push_bytes_total{{{WHERE}}}[{RATE}]))",
            "inflated": f"sum(rate(kafka_telemetry_push_inflated_bytes_total{{{WHERE}}}[{RATE}]))",
        }),
        graph("Time in the telemetry core", "The time to decide a push or a subscription request.", "s", {
            "push, 99 %": _quantile("kafka_telemetry_push_seconds", 0.99),
            "push, median": _quantile("kafka_telemetry_push_seconds", 0.5),
            "get, 99 %": _quantile("kafka_telemetry_get_seconds", 0.99),
        }),
        _rates("Data points left out", "not_finite, known_bad, privacy, over_budget, new_series.",
               "kafka_telemetry_dropped_points_total", "reason", "count:points/s"),
        graph("Back-pressure", "The factor on push intervals, and the instances whose subscriptions are "
               "reduced.", "short", {
            "interval factor": f"max(kafka_telemetry_interval_factor{{{WHERE}}})",
            "reduced instances": f"sum(kafka_telemetry_reduced_instances{{{WHERE}}})",
        }),
        graph("Series", "Data points of the last push of all client instances. The bound is "
               "telemetry.series.max_total for each receiver.", "short", {
            "{{instance}}": f"sum by (instance) (kafka_telemetry_series{{{WHERE}}})"}),
    )  # fmt: skip
    board.row(
        "Connections",
        graph("Open connections by listener", "Of clients.", "short", {
            "{{listener}}": f"sum by (listener) (kafka_telemetry_connections{{{WHERE}}})"}, stacked=True),
        _rates("Connections refused", "upstream: the broker can't be reached; out_of_files; limit, "
               "limit_source_address, limit_principal: too many; proxy_protocol, tls_handshake, "
               "handshake_timeout, principal: not admitted; gone: the client left, like health checks do.",
               "kafka_telemetry_connections_refused_total", "reason", "count:connections/s"),
        _rates("Connections closed", "Why connections ended.",
               "kafka_telemetry_connections_closed_total", "reason", "count:connections/s"),
        _rates("Protocol errors", "Connections closed after malformed input.",
               "kafka_telemetry_protocol_errors_total", "reason", "count:errors/s"),
        _rates("Traffic passed on", "Bytes of Kafka's protocol, by direction.",
               "kafka_telemetry_listener_bytes_total", "direction", "binBps"),
        _rates("Logins by outcome", "SASL and certificates.",
               "kafka_telemetry_authenticated_total", "outcome", "count:logins/s"),
        _rates("Over a limit", "Connections, requests and pushes over a limit of an address or principal.",
               "kafka_telemetry_limit_exceeded_total", "limit", "count:times/s"),
        graph("Connecting to the broker", "How long it takes.", "s", {
            "99 %": _quantile("kafka_telemetry_upstream_connect_seconds", 0.99),
            "median": _quantile("kafka_telemetry_upstream_connect_seconds", 0.5),
        }),
    )  # fmt: skip
    board.row(
        "Delivery",
        _rates("Pushes delivered", "Pushes that destinations accepted.",
               "kafka_telemetry_plugin_exported_pushes_total", "plugin", "count:pushes/s"),
        _rates("Pushes dropped", "Pushes that never reached a destination.",
               "kafka_telemetry_plugin_dropped_pushes_total", "plugin, reason", "count:pushes/s"),
        _plugins("Lag", "The age of the oldest push that is not delivered.",
                 "kafka_telemetry_plugin_lag_seconds", "s"),
        _plugins("In memory", "Bytes of pushes that wait in memory.",
                 "kafka_telemetry_plugin_queue_bytes", "bytes"),
        graph("Spool on disk", "How full each plugin's spool is: at 100 % the oldest pushes are lost.",
               "percentunit", {
            "{{plugin}}": f"max by (plugin) (kafka_telemetry_plugin_spool_bytes{{{WHERE}}}"
            f" / (kafka_telemetry_plugin_spool_max_bytes{{{WHERE}}} > 0)) or on () {none('plugin')}"},
               most=1.0),
        _rates("Failed exports", "Failed calls of a destination.",
               "kafka_telemetry_plugin_failures_total", "plugin", "count:calls/s"),
        _plugins("Longest current call", "Above a minute a plugin hangs.",
                 "kafka_telemetry_plugin_call_seconds", "s"),
        graph("Spool problems", "1 while a spool can't be used: GET /v1/plugins says why.", "short", {
            "{{plugin}}": f"max by (plugin) (kafka_telemetry_plugin_spool_problem{{{WHERE}}})"
            f" or on () {none('plugin')}"}, most=1.0),
    )  # fmt: skip
    return board


def _rates(title: str, description: str, metric: str, by: str, unit: str) -> Panel:
    """Build lines of the rates of a counter; those that did not grow in the range are left out."""
    labels = [label.strip() for label in by.split(",")]
    counter = f"{metric}{{{WHERE}}}"
    # The second part: counters begin with their first event, which increase does not see.
    grew = (
        f"(sum by ({by}) (increase({counter}[$__range] @ end())) > 0"
        f" or sum by ({by}) ({counter} @ end() unless {counter} @ start()) > 0)"
    )
    rates = f"sum by ({by}) (rate({counter}[{RATE}])) and on ({by}) {grew}"
    if labels == ["outcome"]:
        rates = f'label_replace({rates}, "outcome", "accepted", "outcome", "NONE")'
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    return graph(
        title,
        f"`{metric}`: {description}",
        unit,
        {legend: f"{rates} or on () {none(labels[0])}"},
        stacked=True,
    )


def _plugins(title: str, description: str, metric: str, unit: str) -> Panel:
    expression = f"max by (plugin) ({metric}{{{WHERE}}}) or on () {none('plugin')}"
    return graph(title, f"`{metric}`: {description}", unit, {"{{plugin}}": expression})


def _quantile(histogram: str, share: float) -> str:
    quantile = f"histogram_quantile({share}, sum by (le) (rate({histogram}_bucket{{{WHERE}}}[{RATE}])))"
    # It is NaN while nothing happens.
    return f"({quantile} >= 0) or {ZERO}"
