"""Which alerts findings become."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spark_streaming.findings.alerts import alerts

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def finding(**changes: Any) -> dict[str, Any]:
    """A finding as REST answers it."""
    return {
        "kind": "throttled",
        "severity": "warning",
        "cluster_id": "c1",
        "client_id": "pay-1",
        "principal": "User:pay",
        "client_instance_id": None,
        "group_id": None,
        "client_software_name": None,
        "client_software_version": None,
        "began_at": "2026-03-04T12:40:00+01:00",
        "resolved_at": None,
        "summary": "brokers throttle it",
        "client_ids": {"count": 12, "first": ["pay-1", "pay-2"]},
        "owners": {"count": 1, "first": ["payments"]},
        "advice": [
            {"change": {"all": "raise the quota"}, "why": "it is over its quota"},
            {"change": {"java": "linger.ms=20", "librdkafka": "queue.buffering.max.ms=20"}, "why": "small"},
        ],
        **changes,
    }


def test_an_alert_has_the_findings_names_and_lasts_until_it_is_sent_again() -> None:
    (alert,) = alerts([finding()], now=NOW, labels={"team": "kafka", "kind": "other"})
    assert alert == {
        "labels": {
            "alertname": "KafkaClientFinding",
            "team": "kafka",
            "kind": "throttled",
            "severity": "warning",
            "cluster_id": "c1",
            "client_id": "pay-1",
            "principal": "User:pay",
        },
        "annotations": {
            "summary": "brokers throttle it",
            "clients": "pay-1, pay-2 and 10 more",
            "owners": "payments",
            "advice": "raise the quota, because it is over its quota\n"
            "java: linger.ms=20\nlibrdkafka: queue.buffering.max.ms=20",
        },
        "startsAt": "2026-03-04T11:40:00.000000Z",
        "endsAt": "2026-03-04T12:15:00.000000Z",
    }


@pytest.mark.parametrize(("minutes", "sent"), [(0, 1), (15, 1), (16, 0)])
def test_the_end_is_sent_for_a_while(minutes: int, sent: int) -> None:
    resolved = (NOW - timedelta(minutes=minutes)).isoformat()
    found = alerts([finding(resolved_at=resolved)], now=NOW, labels={})
    assert len(found) == sent
    assert all(datetime.fromisoformat(alert["endsAt"]) <= NOW for alert in found)


def test_what_a_finding_lacks_is_left_out() -> None:
    nobody = {"count": 0, "first": []}
    (alert,) = alerts(
        [finding(client_ids=nobody, owners=nobody, advice=[], principal=None)], now=NOW, labels={}
    )
    assert alert["annotations"] == {"summary": "brokers throttle it"}
    assert "principal" not in alert["labels"]
