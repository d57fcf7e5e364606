"""Test helpers for prometheus: series tables and readers of their content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from plugins.prometheus.config import PrometheusConfig
from plugins.prometheus.exposition import exposition
from plugins.prometheus.table import SeriesTable
from receiver.plugin import Push
from tests.unit.plugins._shared.cumulative.support import push as plain_push

URL = "http://127.0.0.1:9090/api/v1/write"

RESOURCE: dict[str, str | int] = {
    "group_member_id": "m-1",
    "client_id": "orders",
    "client_instance_id": "AAAAAAAAAAAAAAAAAAAAAQ",
    "client_source_port": "40000",
    "principal": "User:alice",
}
LABELS = {
    "client_id": "orders",
    "client_instance_id": "AAAAAAAAAAAAAAAAAAAAAQ",
    "instance": "AAAAAAAAAAAAAAAAAAAAAQ",
    "job": "kafka_clients",
    "principal": "User:alice",
}


def table(version: str | None = None, *, bind: bool = True, **settings: Any) -> SeriesTable:
    outputs: dict[str, Any] = {"bind": "127.0.0.1:9464"} if bind else {}
    if version is not None:
        outputs["remote_write"] = {"url": URL, "version": version}
    # Most tests use short metric names, which need a prefix otherwise.
    return SeriesTable(PrometheusConfig.model_validate({**outputs, "metric_prefixes": [""], **settings}))


def push(*metrics: Any, at: float, resource: Mapping[str, str | int] = RESOURCE, **settings: Any) -> Push:
    return plain_push(*metrics, at=at, resource=resource, **settings)


def text_of(of: SeriesTable, *, openmetrics: bool = True) -> str:
    return b"".join(exposition(of, openmetrics=openmetrics)).decode()


def scraped(
    of: SeriesTable, *, openmetrics: bool = True
) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Parse a scrape with prometheus_client: values by sample name and labels, sorted."""
    text = text_of(of, openmetrics=openmetrics)
    parse = openmetrics_families if openmetrics else text_families
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in parse(text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            values = found.setdefault(sample.name, {})
            assert labels not in values, f"{sample.name}{labels} is there twice"
            values[labels] = sample.value
    return found


def own(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a series without its target's."""
    return {name: value for name, value in labels.items() if LABELS.get(name) != value}
