"""Runs a real Alertmanager on loopback: alerts in, webhooks out."""

from __future__ import annotations

from typing import Any

import yaml

from tests.testbed import parts
from tests.testbed.ports import LOOPBACK
from tests.testbed.process import ChildProcess
from tests.testbed.server import HttpServer


class Alertmanager(HttpServer):
    """An Alertmanager, which tells one receiver of all alerts at once.

    Args:
        webhook: The URL of the receiver.
    """

    def __init__(self, webhook: str) -> None:
        super().__init__("alertmanager", ready_path="/-/ready")
        self._webhook = webhook

    def start(self) -> None:
        """Start it on its port.

        Raises:
            StartError: It did not come up; shows the tail of its log.
        """
        folder = self._folder()
        config = folder / "alertmanager.yaml"
        config.write_text(yaml.safe_dump(self._config()))
        process = ChildProcess(
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
        self._run(process)

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that it has, without those that have ended.

        Raises:
            httpx.HTTPStatusError: It refused the request.
        """
        response = self._http.get("/api/v2/alerts")
        response.raise_for_status()
        found: list[dict[str, Any]] = response.json()
        return found

    def _config(self) -> dict[str, Any]:
        route = {"group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"}
        webhook = {"url": self._webhook, "send_resolved": True}
        return {
            "route": {"receiver": "all", "group_by": ["..."], **route},
            "receivers": [{"name": "all", "webhook_configs": [webhook]}],
        }
