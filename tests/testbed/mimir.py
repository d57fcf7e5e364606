"""Runs a real Grafana Mimir on loopback: remote write and OTLP in, PromQL out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.testbed import parts
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess
from tests.testbed.server import HttpServer

#: One process finds its parts without asking others.
_ALONE = {"kvstore": {"store": "inmemory"}, "instance_addr": LOOPBACK}


class Mimir(HttpServer):
    """A single Mimir for one tenant, which keeps blocks in files."""

    def __init__(self) -> None:
        super().__init__("mimir", ready_path="/ready")

    def start(self) -> None:
        """Start it on its port.

        Raises:
            StartError: It did not come up; shows the tail of its log.
        """
        folder = self._folder()
        config = folder / "mimir.yaml"
        config.write_text(yaml.safe_dump(self._config(folder)))
        process = ChildProcess(
            "Mimir",
            [parts.MIMIR.require() / "mimir", f"-config.file={config}"],
            log=folder / "mimir.log",
            cwd=folder,
        )
        self._run(process)

    def series(self, selector: str) -> list[tuple[Mapping[str, str], list[float]]]:
        """Return labels and the values of the last hour of each series.

        Raises:
            httpx.HTTPStatusError: It refused the selector.
        """
        response = self._http.get("/prometheus/api/v1/query", params={"query": f"{selector}[1h]"})
        response.raise_for_status()
        found = response.json()["data"]["result"]
        return [(row["metric"], [float(value) for _, value in row["values"]]) for row in found]

    def _config(self, folder: Path) -> dict[str, Any]:
        return {
            "target": "distributor,ingester,querier,store-gateway",
            "multitenancy_enabled": False,
            "usage_stats": {"enabled": False},
            "activity_tracker": {"filepath": str(folder / "activity.log")},
            "server": {
                "http_listen_address": LOOPBACK,
                "http_listen_port": self.port,
                "grpc_listen_address": LOOPBACK,
                "grpc_listen_port": free_port(),
            },
            "distributor": {"ring": _ALONE},
            "ingester": {"ring": {**_ALONE, "replication_factor": 1, "min_ready_duration": "0s"}},
            "store_gateway": {"sharding_ring": {**_ALONE, "replication_factor": 1}},
            "blocks_storage": {
                "backend": "filesystem",
                "filesystem": {"dir": str(folder / "blocks")},
                "tsdb": {"dir": str(folder / "tsdb")},
                "bucket_store": {"sync_dir": str(folder / "sync")},
            },
        }
