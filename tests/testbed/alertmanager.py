"""Runs a real Alertmanager on loopback, which sends what it gets to a webhook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.testbed import parts
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess
from tests.testbed.server import Server

_READY_WITHIN_S = 60.0
_REQUEST_TIMEOUT_S = 60.0


class Alertmanager(Server):
    """Alertmanager with one route.

    Args:
        webhook: The URL that gets its notifications.
    """

    def __init__(self, webhook: str) -> None:
        super().__init__("alertmanager")
        self.port = free_port()
        self._webhook = webhook
        self._http = httpx.Client(base_url=self.url, timeout=_REQUEST_TIMEOUT_S, trust_env=False)

    @property
    def url(self) -> str:
        """Where its API is."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it.

        Raises:
            StartError: It did not come up; shows the tail of its log.
        """
        folder = self._folder()
        config = folder / "alertmanager.yaml"
        config.write_text(yaml.safe_dump(_config(self._webhook)))
        self._process = ChildProcess(
            "Alertmanager",
            [
                parts.ALERTMANAGER.require() / "alertmanager",
                f"--config.file={config}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address={LOOPBACK}:{self.port}",
                "--cluster.listen-address=",
            ],
            log=folder / "alertmanager.log",
            cwd=folder,
        )
        self._process.wait_until_ready(self._is_ready, timeout_s=_READY_WITHIN_S)

    def close(self) -> None:
        """End it if it runs and forget what it has."""
        self._http.close()
        super().close()

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that it has, without those that ended."""
        response = self._http.get("/api/v2/alerts")
        response.raise_for_status()
        found: list[dict[str, Any]] = response.json()
        return found

    def _lay_out(self, folder: Path) -> None:
        """Nothing to lay out."""

    def _is_ready(self) -> bool:
        try:
            return self._http.get("/-/ready").is_success
        except httpx.TransportError:
            return False


def _config(webhook: str) -> dict[str, Any]:
    """One notification for each alert, at once."""
    route = {"receiver": "test", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
    receiver = {"name": "test", "webhook_configs": [{"url": webhook, "send_resolved": True}]}
    return {"route": route, "receivers": [receiver]}
