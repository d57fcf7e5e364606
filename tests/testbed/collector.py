"""Owns a real OpenTelemetry Collector on loopback, and the reading of what arrived in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tests.testbed import parts
from tests.testbed.ports import LOOPBACK, free_port, is_open
from tests.testbed.process import ChildProcess, wait_until
from tests.testbed.server import Server

#: An attribute's value; a list or map stays in OTLP's JSON form, as text.
AttributeValue = str | int | float | bool

Kind = Literal["gauge", "sum", "histogram", "exponentialHistogram", "summary"]
Temporality = Literal["delta", "cumulative"]

_READY_WITHIN_S = 300.0
_KINDS: tuple[Kind, ...] = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")
_TEMPORALITIES: Mapping[int, Temporality] = {1: "delta", 2: "cumulative"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One data point.

    Attributes:
        attributes: Its attributes.
        value: Its value; None for the kinds that have more than one number.
        start_time_ns: Since when it counts, nanoseconds since the epoch; 0 when it does not say.
        time_ns: When it was taken, nanoseconds since the epoch.
    """

    attributes: Mapping[str, AttributeValue]
    value: int | float | None
    start_time_ns: int
    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedMetric:
    """One metric of one Resource in one export.

    Attributes:
        resource: The Resource's attributes.
        scope: The instrumentation scope's name.
        name: The metric's name.
        unit: The metric's unit, empty when it has none.
        kind: What OTLP calls its data.
        monotonic: Whether a sum only grows.
        temporality: Of sums and histograms; None for others.
        points: Its data points.
    """

    resource: Mapping[str, AttributeValue]
    scope: str
    name: str
    unit: str
    kind: Kind
    monotonic: bool
    temporality: Temporality | None
    points: tuple[Point, ...]


class Collector(Server):
    """A collector that receives OTLP over gRPC and HTTP and writes exports to a file.

    Attributes:
        grpc_port: Where it takes OTLP/gRPC.
        http_port: Where it takes OTLP/HTTP (``/v1/metrics``).
    """

    def __init__(self) -> None:
        self.grpc_port = free_port()
        self.http_port = free_port()
        super().__init__("collector")
        self._offset = 0
        self._exports: list[ExportedMetric] = []

    @property
    def grpc_endpoint(self) -> str:
        """Where it takes OTLP/gRPC, as a URL."""
        return f"http://{LOOPBACK}:{self.grpc_port}"

    @property
    def http_endpoint(self) -> str:
        """Where it takes OTLP/HTTP, as a URL without a path."""
        return f"http://{LOOPBACK}:{self.http_port}"

    @property
    def file(self) -> Path:
        """Where the exports go: each line is an ExportMetricsServiceRequest in OTLP's JSON form."""
        return self._folder() / "exports.jsonl"

    def start(self) -> None:
        """Start it, also after :meth:`stop` or :meth:`kill`; earlier exports stay.

        Raises:
            StartError: It did not come up; shows the tail of its log.
        """
        folder = self._folder()
        config = folder / "collector.yaml"
        config.write_text(yaml.safe_dump(self._config()))
        self.file.touch()
        self._process = ChildProcess(
            "OpenTelemetry Collector",
            [parts.COLLECTOR.require() / "otelcol", "--config", config],
            log=folder / "collector.log",
            cwd=folder,
        )
        self._process.wait_until_ready(
            lambda: is_open(self.grpc_port) and is_open(self.http_port), timeout_s=_READY_WITHIN_S
        )

    def stop(self) -> None:
        """Stop it cleanly: what it took is in the file afterwards.

        Raises:
            StopError: It had to be killed.
        """
        self._started().terminate()

    def exports(self) -> Sequence[ExportedMetric]:
        """Everything that arrived so far, in order; each call parses only what is new."""
        with self.file.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]  # the last line may still be being written
        self._offset += len(whole)
        for line in whole.splitlines():
            self._exports.extend(exported_metrics(json.loads(line)))
        return tuple(self._exports)

    def forget(self) -> None:
        """Drop earlier exports from :meth:`exports`, for a test that shares the collector."""
        self.exports()
        self._exports.clear()

    def wait_for(
        self,
        predicate: Callable[[Sequence[ExportedMetric]], bool],
        *,
        timeout_s: float = 120.0,
        what: str = "the exports that were waited for",
    ) -> Sequence[ExportedMetric]:
        """Wait until ``predicate`` holds for everything that arrived so far, and return that.

        Raises:
            WaitTimeoutError: It did not in time; names ``what``.
        """
        wait_until(lambda: predicate(self.exports()), timeout_s=timeout_s, what=f"{what} in the collector")
        return self.exports()

    def _config(self) -> dict[str, object]:
        protocols = {
            "grpc": {"endpoint": f"{LOOPBACK}:{self.grpc_port}", "max_recv_msg_size_mib": 64},
            "http": {"endpoint": f"{LOOPBACK}:{self.http_port}"},
        }
        return {
            "receivers": {"otlp": {"protocols": protocols}},
            "exporters": {
                # With rotation, what was answered is written: a kill then loses nothing that was
                # taken.
                "file": {"path": str(self.file), "rotation": {"max_megabytes": 10_000}},
                "debug": {"verbosity": "basic"},
            },
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["file", "debug"]}},
            },
        }


def exported_metrics(export: Mapping[str, Any]) -> list[ExportedMetric]:
    """Return the metrics of an ExportMetricsServiceRequest in OTLP's JSON form."""
    return [
        _metric(resource_metrics.get("resource", {}), scope_metrics.get("scope", {}), metric)
        for resource_metrics in export.get("resourceMetrics", ())
        for scope_metrics in resource_metrics.get("scopeMetrics", ())
        for metric in scope_metrics.get("metrics", ())
    ]


def _metric(
    resource: Mapping[str, Any], scope: Mapping[str, Any], metric: Mapping[str, Any]
) -> ExportedMetric:
    kind = next(kind for kind in _KINDS if kind in metric)
    data = metric[kind]
    return ExportedMetric(
        resource=_attributes(resource),
        scope=scope.get("name", ""),
        name=metric["name"],
        unit=metric.get("unit", ""),
        kind=kind,
        monotonic=data.get("isMonotonic", False),
        temporality=_TEMPORALITIES.get(data.get("aggregationTemporality", 0)),
        points=tuple(_point(point) for point in data.get("dataPoints", ())),
    )


def _point(point: Mapping[str, Any]) -> Point:
    value: int | float | None = None
    if "asDouble" in point:
        value = float(point["asDouble"])
    elif "asInt" in point:
        value = int(point["asInt"])
    return Point(
        attributes=_attributes(point),
        value=value,
        start_time_ns=int(point.get("startTimeUnixNano", 0)),
        time_ns=int(point.get("timeUnixNano", 0)),
    )


def _attributes(holder: Mapping[str, Any]) -> Mapping[str, AttributeValue]:
    return {item["key"]: _value(item.get("value", {})) for item in holder.get("attributes", ())}


def _value(value: Mapping[str, Any]) -> AttributeValue:
    for form, convert in (
        ("stringValue", str),
        ("intValue", int),
        ("doubleValue", float),
        ("boolValue", bool),
    ):
        if form in value:
            return convert(value[form])
    return json.dumps(value, sort_keys=True)
