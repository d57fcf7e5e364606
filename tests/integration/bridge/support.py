"""Brokers with the bridge."""

from __future__ import annotations

from pathlib import Path
from typing import Final

JMX: Final = "org.apache.kafka.common.metrics.JmxReporter"
REPORTER: Final = "kafkaclienttelemetry.bridge.BridgeReporter"
EXPORTER: Final = "kafkaclienttelemetry.bridge.BridgeExporter"

#: The first release that can load BridgeExporter.
_SECOND_INTERFACE: Final = (4, 2)


def entry_for(version: str) -> str:
    """Return the class that a release of Kafka takes."""
    major, minor = version.split(".")[:2]
    return EXPORTER if (int(major), int(minor)) >= _SECOND_INTERFACE else REPORTER


def properties(token_file: Path, *ports: int, entry: str = EXPORTER, **more: str) -> dict[str, str]:
    """Return a broker's properties for a bridge to receivers at these ports."""
    return {
        "metric.reporters": f"{JMX},{entry}",
        "kafka.telemetry.bridge.receivers": ",".join(f"127.0.0.1:{port}" for port in ports),
        "kafka.telemetry.bridge.token.file": str(token_file),
        **{f"kafka.telemetry.bridge.{key.replace('_', '.')}": value for key, value in more.items()},
    }
