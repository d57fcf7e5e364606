"""The subscription of `put --preset dashboards` has what dashboards, findings and signs read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.captured import (
    JAVA_CONSUMER,
    JAVA_PRODUCER,
    LIBRDKAFKA_CONSUMER,
    LIBRDKAFKA_PRODUCER,
    Captured,
)
from deploy.dashboards.preset import PRESET, preset
from deploy.dashboards.written import CHART, CHART_PRESET, files
from receiver.telemetry.signs import RULES
from receiver.telemetry.subscription_document import read_document
from spark_streaming.watched import WATCHED

TEXTS = [text for _, text in files()]
ASKED = json.loads(PRESET.read_text("utf-8"))["metrics"]
README = (Path(__file__).parents[3] / "examples" / "subscriptions" / "README.md").read_text("utf-8")


def test_the_preset_is_up_to_date_and_valid() -> None:
    assert PRESET.read_text("utf-8") == preset(TEXTS), "run `make docs`"
    assert (CHART / CHART_PRESET).read_text("utf-8") == preset(TEXTS), "run `make docs`"
    document = {"name": "dashboards", **json.loads(PRESET.read_text("utf-8"))}
    assert list(read_document(document).metrics) == ASKED


def test_it_has_each_metric_that_a_query_names_and_that_findings_and_signs_read() -> None:
    named = {name for text in TEXTS for name in re.findall(r"org\.apache\.kafka\.[a-z0-9.]*[a-z0-9]", text)}
    named |= {metric for slot in WATCHED for metric in slot.metrics}
    named |= {f"org.apache.kafka.{metric}" for rule in RULES.values() for metric in rule.metrics}
    assert {name for name in named if not any(name.startswith(prefix) for prefix in ASKED)} == set()


def test_a_new_panel_adds_its_metric() -> None:
    further = "org.apache.kafka.producer.metadata.age"
    assert further not in ASKED
    assert further in json.loads(preset([*TEXTS, f"metric = '{further}'"]))["metrics"]
    assert (
        further in json.loads(preset([*TEXTS, "org_apache_kafka_producer_metadata_age_seconds"]))["metrics"]
    )


@pytest.mark.parametrize(
    "client",
    [JAVA_PRODUCER, JAVA_CONSUMER, LIBRDKAFKA_PRODUCER, LIBRDKAFKA_CONSUMER],
    ids=lambda one: one.client,
)
def test_the_page_says_what_it_costs(client: Captured) -> None:
    pushed = MetricsData()
    pushed.ParseFromString(client.inflated())
    points = {"all": 0, "preset": 0}
    for resource in pushed.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                count = len(getattr(metric, metric.WhichOneof("data") or "").data_points)
                points["all"] += count
                points["preset"] += count * metric.name.startswith(tuple(ASKED))
    assert f"| {client.client} | {points['preset']} | {points['all']} |" in README
