"""Runs a real Prometheus on loopback: scrapes, remote write, OTLP and PromQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.testbed import parts
from tests.testbed.ports import LOOPBACK
from tests.testbed.process import ChildProcess
from tests.testbed.server import HttpServer

_STOP_WITHIN_S = 20.0

#: It believes since when something counts, and then puts a zero there.
_FEATURES = ("created-timestamp-zero-ingestion",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """One series of a query's result.

    Attributes:
        labels: Its labels, the name as ``__name__``.
        value: Its value.
    """

    labels: Mapping[str, str]
    value: float


class Prometheus(HttpServer):
    """Prometheus, which takes remote write and OTLP, and scrapes.

    Args:
        scrape: ``host:port`` of what it scrapes every second; labels that are told there stay as
            they are.
        scrape_protocols: What it asks for, in Prometheus's own words.
        config: A configuration file in the place of both.
    """

    def __init__(
        self,
        *,
        scrape: Sequence[str] = (),
        scrape_protocols: Sequence[str] = ("OpenMetricsText1.0.0",),
        config: Path | None = None,
    ) -> None:
        super().__init__("prometheus", ready_path="/-/ready")
        self._scrape = list(scrape)
        self._scrape_protocols = list(scrape_protocols)
        self._config = config

    @property
    def write_url(self) -> str:
        """Where it takes remote write."""
        return f"{self.url}/api/v1/write"

    def start(self) -> None:
        """Start it on its port, again after :meth:`stop`; what it has stays.

        Raises:
            StartError: It did not come up; shows the tail of its log.
        """
        folder = self._folder()
        config = self._config or self._write_config(folder / "prometheus.yaml")
        process = ChildProcess(
            "Prometheus",
            [
                parts.PROMETHEUS.require() / "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={LOOPBACK}:{self.port}",
                "--web.enable-remote-write-receiver",
                "--web.enable-otlp-receiver",
                f"--enable-feature={','.join(_FEATURES)}",
            ],
            log=folder / "prometheus.log",
            cwd=folder,
        )
        self._run(process)

    def stop(self) -> None:
        """Stop it cleanly.

        Raises:
            StopError: It had to be killed.
        """
        self._started().terminate(_STOP_WITHIN_S)

    def query(self, promql: str, *, at_s: float | None = None) -> list[Sampled]:
        """Evaluate an instant query.

        Args:
            promql: The query; its result is a vector.
            at_s: For which time, in seconds since the epoch; None: now.

        Raises:
            httpx.HTTPStatusError: It refused the query.
        """
        parameters = {"query": promql} | ({} if at_s is None else {"time": repr(at_s)})
        response = self._http.get("/api/v1/query", params=parameters)
        response.raise_for_status()
        return [
            Sampled(labels=item["metric"], value=float(item["value"][1]))
            for item in response.json()["data"]["result"]
        ]

    def times(
        self, promql: str, *, start_s: float, end_s: float, step_s: float
    ) -> list[tuple[Mapping[str, str], list[float]]]:
        """Evaluate a query at each step: each series' labels, and when it was in the result.

        Args:
            promql: The query; its result is a vector.
            start_s: The first time, in seconds since the epoch.
            end_s: The last one.
            step_s: From one to the next, in seconds.

        Raises:
            httpx.HTTPStatusError: It refused the query.
        """
        parameters = {"query": promql, "start": repr(start_s), "end": repr(end_s), "step": repr(step_s)}
        response = self._http.get("/api/v1/query_range", params=parameters)
        response.raise_for_status()
        return [
            (item["metric"], [float(time_s) for time_s, _ in item["values"]])
            for item in response.json()["data"]["result"]
        ]

    def value(self, promql: str, *, at_s: float | None = None) -> float | None:
        """The value of a query with one series in its result; None where there is none.

        Raises:
            ValueError: There are several.
        """
        found = self.query(promql, at_s=at_s)
        if len(found) > 1:
            raise ValueError(f"{promql} has {len(found)} series: {[dict(item.labels) for item in found][:5]}")
        return found[0].value if found else None

    def metadata(self) -> dict[str, list[dict[str, str]]]:
        """What it knows of the metrics that it scrapes: ``type``, ``help`` and ``unit`` by name."""
        response = self._http.get("/api/v1/metadata")
        response.raise_for_status()
        found: dict[str, list[dict[str, str]]] = response.json()["data"]
        return found

    def write_otlp(self, data: bytes) -> None:
        """Give it OTLP metrics, which it names by its own rules.

        Raises:
            httpx.HTTPStatusError: It refused them.
        """
        headers = {"content-type": "application/x-protobuf"}
        self._http.post("/api/v1/otlp/v1/metrics", content=data, headers=headers).raise_for_status()

    def _write_config(self, file: Path) -> Path:
        jobs = {
            "job_name": "clients",
            "honor_labels": True,
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "scrape_protocols": self._scrape_protocols,
            "static_configs": [{"targets": self._scrape}],
        }
        config = {
            "scrape_configs": [jobs] if self._scrape else [],
            "otlp": {"translation_strategy": "UnderscoreEscapingWithSuffixes"},
        }
        file.write_text(yaml.safe_dump(config))
        return file
