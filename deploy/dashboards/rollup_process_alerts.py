"""Prometheus alert rules on the roll-up's own metrics.

They watch the job while it runs. The rules of :mod:`deploy.dashboards.rollup_alerts` ask its tables
in PostgreSQL instead, so they also notice a job that was never started.
"""

from __future__ import annotations

from typing import Final

from deploy.dashboards.prometheus_rule import PrometheusRule

#: Is in every scrape of a roll-up, from its start on.
_ALWAYS: Final = "kafka_telemetry_rollup_consecutive_failures"
_TO_PACK: Final = 'kafka_telemetry_rollup_maintenance_backlog{kind="hours_to_pack"}'
_DEAD_LETTERS: Final = "kafka_telemetry_rollup_dead_letters_total"

ROLLUP_RULES: Final = (
    PrometheusRule(
        name="KafkaTelemetryRollupDown",
        expression=f"up == 0 and on (job, instance) last_over_time({_ALWAYS}[1d])",
        lasts="5m",
        severity="critical",
        summary="Roll-up {{ .Labels.instance }} does not answer",
        description="It ended, hangs, or refuses Prometheus. Dashboards show nothing new meanwhile. Check "
        "the process, its log and the target's error in Prometheus.",
    ),
    PrometheusRule(
        name="KafkaTelemetryRollupBatchesFail",
        expression=f"{_ALWAYS} >= 3",
        lasts="5m",
        severity="critical",
        summary="Roll-up {{ .Labels.instance }} can't commit a batch",
        description="It retries the batch and reads nothing else. PostgreSQL or the source can't be reached, "
        "or the disk is full. The log has the reason.",
    ),
    PrometheusRule(
        name="KafkaTelemetryRollupLags",
        expression="kafka_telemetry_rollup_lag_seconds > 600",
        lasts="10m",
        summary="Roll-up {{ .Labels.instance }} is minutes behind",
        description="Batches take longer than pushes take to arrive, or the job works off a backlog. "
        "kafka_telemetry_rollup_stage_seconds shows where the time goes.",
    ),
    PrometheusRule(
        name="KafkaTelemetryRollupMaintenanceLate",
        expression="time() - kafka_telemetry_rollup_maintenance_last_success_timestamp_seconds > 900",
        lasts="5m",
        summary="Roll-up {{ .Labels.instance }} completes no maintenance",
        description="Hours, days, findings and retention stand still. Maintenance fails, or waits for a "
        "batch. The log has the reason.",
    ),
    PrometheusRule(
        name="KafkaTelemetryFindings",
        expression='sum by (job, instance, kind) (kafka_telemetry_rollup_findings{severity!="info"}) > 0',
        summary="Clients have findings of kind {{ .Labels.kind }}",
        description="`kafka-telemetry rollup findings` and GET /v1/findings of the roll-up show which "
        "clients, since when, and what to change.",
    ),
    PrometheusRule(
        name="KafkaTelemetryRollupPackingLags",
        # A job that was away packs what it missed step by step, and the number falls.
        expression=f"{_TO_PACK} > 6 and delta({_TO_PACK}[20m]) >= 0",
        lasts="30m",
        summary="Roll-up {{ .Labels.instance }} packs hours more slowly than they pass",
        description="Minutes that are not packed take at least ten times the space. Maintenance spends ten "
        "seconds a minute on packing; PostgreSQL's disk or CPU may be busy.",
    ),
    PrometheusRule(
        name="KafkaTelemetryRollupDeadLetters",
        # increase() misses the first batch of a process, which may end before the first scrape.
        expression=f"increase({_DEAD_LETTERS}[1h]) > 0 "
        f"or {_DEAD_LETTERS} > 0 and on (job, instance) process_start_time_seconds > time() - 3600",
        summary="Roll-up {{ .Labels.instance }} could not read some pushes",
        description="The view telemetry.dead_letter lists them with their reason and source.",
    ),
)
