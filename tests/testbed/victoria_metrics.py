"""Runs a real VictoriaMetrics on loopback: remote write and OTLP in, PromQL out."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.testbed import parts
from tests.testbed.process import ChildProcess
from tests.testbed.server import HttpServer


class VictoriaMetrics(HttpServer):
    """A single VictoriaMetrics, which keeps samples of any age."""

    def __init__(self) -> None:
        super().__init__("victoria-metrics", ready_path="/health")

    def start(self) -> None:
        """Start it on its port, again after its end; what it has stays.

        Raises:
            StartError: It did not come up; shows the tail of its log.
        """
        folder = self._folder()
        process = ChildProcess(
            "VictoriaMetrics",
            [
                parts.VICTORIA_METRICS.require() / "victoria-metrics",
                f"-httpListenAddr={self.address}",
                f"-storageDataPath={folder / 'data'}",
                "-retentionPeriod=100y",
            ],
            log=folder / "victoria-metrics.log",
            cwd=folder,
        )
        self._run(process)

    def series(self, selector: str) -> list[tuple[Mapping[str, str], list[float]]]:
        """Return labels and stored values of each series, whenever they are from.

        Raises:
            httpx.HTTPStatusError: It refused the selector.
        """
        self._http.get("/internal/force_flush").raise_for_status()  # new samples are found a second later
        response = self._http.get("/api/v1/export", params={"match[]": selector})
        response.raise_for_status()
        rows = [json.loads(line) for line in response.text.splitlines()]
        return [(row["metric"], row["values"]) for row in rows]
