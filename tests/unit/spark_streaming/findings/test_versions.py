"""Old and bad versions are judged, in agreement with the receiver's quirks."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from receiver.telemetry.quirks import Quirks
from spark_streaming.findings.versions import (
    SEVERITIES,
    SoftwareVersions,
    built_in_versions,
    judge_versions,
)

_REPORT = re.compile(r"#\d+|KAFKA-\d+")


def reports(name: str, version: str, kind: str = "known_bad_version") -> set[str]:
    verdicts = judge_versions([(name, version)], built_in_versions()[kind], "producer")
    return {found for verdict in verdicts for reason in verdict.reasons for found in _REPORT.findall(reason)}


@pytest.mark.parametrize(
    ("name", "version", "severity"),
    [
        ("apache-kafka-java", "3.9.1", "critical"),
        ("apache-kafka-java", "3.9.2", None),
        ("apache-kafka-java", "4.0.1", "critical"),
        ("apache-kafka-java", "4.0.2", None),
        ("apache-kafka-java", "4.1.1", "critical"),
        ("apache-kafka-java", "4.1.2", None),
        ("apache-kafka-java", "4.4.0", None),
        ("apache-kafka-java", "7.9.1-ccs", "info"),
        ("apache-kafka-java", "8.1.0-ce", None),
        ("librdkafka", "2.5.0", "warning"),
        ("librdkafka", "v2.5.2", "warning"),
        ("librdkafka", "2.5.3", "info"),
        ("librdkafka", "2.11.0", None),
        ("confluent-kafka-python", "2.5.0-rdkafka-2.11.0", None),
        ("confluent-kafka-python", "2.16.0-rdkafka-2.5.1", "warning"),
        ("confluent-kafka-dotnet", "2.5.2", "warning"),
        ("rust-rdkafka", "0.36.0-rdkafka-2.5.0", "warning"),
        ("kgo", "v1.21.3", "warning"),
        ("kgo", "v1.21.4", None),
        ("kgo", "", None),
        ("kgo", "unknown", None),
        ("kgo", "9999999999", None),
        ("made-up", "1.0", None),
    ],
)
def test_known_bad(name: str, version: str, severity: str | None) -> None:
    verdicts = judge_versions([(name, version)], built_in_versions()["known_bad_version"], "producer")
    assert [verdict.severity for verdict in verdicts] == ([] if severity is None else [severity])


@pytest.mark.parametrize(
    ("name", "version", "old"),
    [
        ("apache-kafka-java", "4.1.2", True),
        ("apache-kafka-java", "4.2.0", False),
        ("apache-kafka-java", "7.9.1-ccs", False),
        ("librdkafka", "2.9.0", True),
        ("librdkafka", "2.10.0", False),
    ],
)
def test_old(name: str, version: str, old: bool) -> None:
    assert bool(judge_versions([(name, version)], built_in_versions()["old_version"], "consumer")) is old


def test_the_worst_reason_comes_first_with_its_source() -> None:
    (verdict,) = judge_versions(
        [("apache-kafka-java", "3.8.0")], reversed(built_in_versions()["known_bad_version"]), "producer"
    )
    by_reason = {entry.reason: entry for entry in built_in_versions()["known_bad_version"]}
    entries = [by_reason[reason] for reason in verdict.reasons]
    assert [entry.severity for entry in entries] == ["critical", "warning", "info"]
    assert verdict.sources == tuple(entry.source for entry in entries)
    assert set(SEVERITIES) == {entry.severity for entry in entries}


def test_a_bug_of_producers_is_none_of_consumers() -> None:
    (verdict,) = judge_versions(
        [("apache-kafka-java", "3.8.0")], built_in_versions()["known_bad_version"], "consumer"
    )
    assert verdict.severity == "warning"
    assert not any("CVE-2026-35554" in reason for reason in verdict.reasons)


def test_every_reported_bug_that_the_receiver_works_around_is_known_bad() -> None:
    software = [
        *(("librdkafka", f"2.{minor}.{patch}") for minor in range(4, 17) for patch in range(4)),
        *(("apache-kafka-java", f"3.{minor}.{patch}") for minor in range(6, 10) for patch in range(4)),
        *(("apache-kafka-java", f"4.{minor}.{patch}") for minor in range(5) for patch in range(4)),
        *(("apache-kafka-java", f"{version}.2-ccs") for version in ("7.6", "7.7", "7.9", "8.0", "8.1")),
    ]
    quirks = Quirks(compression=())
    worked_around = 0
    for name, version in software:
        known = {
            found for reason in quirks.treatment(name, version).reasons for found in _REPORT.findall(reason)
        }
        assert known <= reports(name, version), (name, version)
        worked_around += bool(known)
    assert worked_around > 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"before": "2.0"}, "at_least (2.0) must be lower than before (2.0)"),
        ({"before": "2.x"}, "before"),
        ({"severity": "bad"}, "severity"),
        ({"reason": ""}, "reason"),
        ({"versions": "<3"}, "versions"),
    ],
)
def test_a_wrong_range_is_named(change: dict[str, str], message: str) -> None:
    entry = {
        "client_software_name": "kgo",
        "at_least": "2.0",
        "before": "2.1",
        "reason": "because",
        "source": "us",
    }
    assert SoftwareVersions.model_validate(entry).contains("2.0.9-rc1")
    with pytest.raises(ValidationError, match=re.escape(message)):
        SoftwareVersions.model_validate(entry | change)
