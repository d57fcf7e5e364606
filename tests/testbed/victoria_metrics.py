"""Runs a real VictoriaMetrics on loopback: remote write and OTLP in, PromQL out."""

from __future__ import annotations

import json
from collections.abc import Mapping

import httpx

from tests.testbed import parts
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess
from tests.testbed.server import Server

_READY_WITHIN_S = 300.0
_REQUEST_TIMEOUT_S = 120.0


class VictoriaMetrics(Server):
    """A single VictoriaMetrics, which keeps samples of any age.

    Attributes:
        address: Where it is, ``host:port``.
    """

    def __init__(self) -> None:
        super().__init__("victoria-metrics")
        self.address = f"{LOOPBACK}:{free_port()}"
        self._http = httpx.Client(
            base_url=f"http://{self.address}", timeout=_REQUEST_TIMEOUT_S, trust_env=False
        )

    def start(self) -> None:
        """Start it on its port, again after its end; what it has stays.

        Raises:
            StartError: It did not come up; shows the tail of its log.
        """
        folder = self._folder()
        self._process = ChildProcess(
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
        self._process.wait_until_ready(self._is_ready, timeout_s=_READY_WITHIN_S)

    def close(self) -> None:
        """End it if it runs and forget what it has."""
        self._http.close()
        super().close()

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

    def _is_ready(self) -> bool:
        try:
            return self._http.get("/health").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False
