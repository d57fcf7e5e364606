"""What the reporters of a broker do to client telemetry."""

from __future__ import annotations

import pytest

from receiver.doctor.bridge import reporter_findings
from receiver.doctor.findings import State

JMX = "org.apache.kafka.common.metrics.JmxReporter"
EXPORTER = "kafkaclienttelemetry.bridge.BridgeExporter"
REPORTER = "kafkaclienttelemetry.bridge.BridgeReporter"


@pytest.mark.parametrize(
    ("reporters", "checks"),
    [
        (f"{JMX},{EXPORTER}", ["reporters"]),
        (f" {REPORTER} , {JMX}", ["reporters"]),
        (EXPORTER, ["jmx"]),
        (JMX, ["bridge"]),
        ("", ["bridge", "jmx"]),
        (f"{JMX},{EXPORTER},com.example.Telemetry", ["neighbours"]),
        (f"{JMX},{EXPORTER},{REPORTER}", ["bridge"]),
        (f"{JMX},{EXPORTER},com.linkedin.kafka.cruisecontrol.metricsreporter.CruiseControlMetricsReporter",
         ["reporters"]),
    ],
)  # fmt: skip
def test_reporters(reporters: str, checks: list[str]) -> None:
    findings = reporter_findings(3, {"metric.reporters": reporters})
    assert [finding.check for finding in findings] == checks
    expected = State.OK if checks == ["reporters"] else State.WARNING
    assert {finding.state for finding in findings} == {expected}
    assert all("broker 3" in finding.subject for finding in findings)


def test_kafka_3_adds_jmx_by_itself() -> None:
    values = {"metric.reporters": REPORTER, "auto.include.jmx.reporter": "true"}
    assert [finding.check for finding in reporter_findings(1, values)] == ["reporters"]
