"""Runs a real Prometheus on loopback: scrapes, remote write, OTLP and PromQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

from tests.testbed import parts
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess
from tests.testbed.server import Server

_READY_WITHIN_S = 300.0
_REQUEST_TIMEOUT_S = 120.0
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


class Prometheus(Server):
    """Prometheus, which takes remote write and OTLP, and scrapes.

    Args:
        scrape: ``host:port`` of what it scrapes every second; labels that are told there stay as
            they are.
        scrape_protocols: What it asks for, in Prometheus's own words.
        config: A configuration file in the place of both.

    Attributes:
        port: Where it is.
    """

    def __init__(
        self,
        *,
        scrape: Sequence[str] = (),
        scrape_protocols: Sequence[str] = ("OpenMetricsText1.0.0",),
        config: Path | None = None,
    ) -> None:
        super().__init__("prometheus")
        self.port = free_port()
        self._scrape = list(scrape)
        self._scrape_protocols = list(scrape_protocols)
        self._config = config
        self._http = httpx.Client(base_url=self.url, timeout=_REQUEST_TIMEOUT_S, trust_env=False)

    @property
    def url(self) -> str:
        """Where its HTTP API is."""
        return f"http://{LOOPBACK}:{self.port}"

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
        self._process = ChildProcess(
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
        self._process.wait_until_ready(self._is_ready, timeout_s=_READY_WITHIN_S)

    def stop(self) -> None:
        """Stop it cleanly.

        Raises:
            StopError: It had to be killed.
        """
        self._started().terminate(_STOP_WITHIN_S)

    def close(self) -> None:
        """End it if it runs and forget what it has."""
        self._http.close()
        super().close()

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
            Sampled(labels=one["metric"], value=float(one["value"][1]))
            for one in response.json()["data"]["result"]
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
            (one["metric"], [float(time_s) for time_s, _ in one["values"]])
            for one in response.json()["data"]["result"]
        ]

    def value(self, promql: str, *, at_s: float | None = None) -> float | None:
        """The value of a query with one series in its result; None where there is none.

        Raises:
            ValueError: There are several.
        """
        found = self.query(promql, at_s=at_s)
        if len(found) > 1:
            raise ValueError(f"{promql} has {len(found)} series: {[dict(one.labels) for one in found][:5]}")
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

    def _is_ready(self) -> bool:
        try:
            return self._http.get("/-/ready").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

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
