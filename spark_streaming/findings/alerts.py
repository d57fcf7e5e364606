"""Findings as alerts of Alertmanager. Pure.

An alert is identified by its labels, so they are what a finding is about and its severity. They are
the same in each database that read the same pushes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from spark_streaming.findings.answers import SUBJECT
from spark_streaming.findings.text import listed
from spark_streaming.times import time_from_text

ALERT_NAME: Final = "KafkaClientFinding"
#: How long an alert stays without being sent again, as while the roll-up restarts.
LIFETIME: Final = timedelta(minutes=15)
#: How long the end of a finding is sent, because a delivery may fail.
REPEATED: Final = timedelta(minutes=15)


def alerts(
    found: Iterable[Mapping[str, Any]], *, now: datetime, labels: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the alerts of open findings, and of those that were resolved lately.

    Args:
        found: Findings as REST answers them.
        labels: Further labels of each alert. They don't replace those of the finding.

    Source: Alertmanager's API v2, ``POST /api/v2/alerts``.
    """
    sent = []
    for finding in found:
        resolved_at = finding["resolved_at"]
        ends = now + LIFETIME if resolved_at is None else time_from_text(resolved_at)
        if now - ends > REPEATED:
            continue
        own = {name: finding[name] for name in SUBJECT if finding[name]}
        sent.append(
            {
                "labels": {**labels, **own, "alertname": ALERT_NAME},
                "annotations": dict(_annotations(finding)),
                "startsAt": _text(time_from_text(finding["began_at"])),
                "endsAt": _text(ends),
            }
        )
    return sent


def _annotations(finding: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "summary", finding["summary"]
    for name, annotation in (("client_ids", "clients"), ("owners", "owners")):
        if finding[name]["first"]:
            yield annotation, listed(finding[name])
    changes = [
        f"{keys}, because {change['why']}" if software == "all" else f"{software}: {keys}"
        for change in finding["advice"]
        for software, keys in change["change"].items()
    ]
    if changes:
        yield "advice", "\n".join(changes)


def _text(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
