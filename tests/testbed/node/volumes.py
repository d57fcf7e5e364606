"""Makes a local volume for each claim, as a provisioner does in a cluster."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from tests.testbed.node.settings import NODE

_EVERY_S: Final = 0.3


class Provisioner:
    """While it is entered, each claim gets a volume: a folder of the node.

    Args:
        http: The API server, for this thread alone.
        folder: Where the folders are made.
    """

    def __init__(self, http: httpx.Client, folder: Path) -> None:
        self._http = http
        self._folder = folder
        self._done: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._http.close()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            try:
                claims = self._http.get("/api/v1/persistentvolumeclaims").raise_for_status().json()["items"]
                for claim in claims:
                    if claim["metadata"]["uid"] not in self._done and not claim["spec"].get("volumeName"):
                        self._make(claim)
            except httpx.HTTPError:
                continue  # the API server starts or ends

    def _make(self, claim: dict[str, Any]) -> None:
        metadata = claim["metadata"]
        folder = self._folder / metadata["uid"]
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
        volume = {
            "metadata": {"name": f"pv-{metadata['uid']}"},
            "spec": {
                "capacity": claim["spec"]["resources"]["requests"],
                "accessModes": claim["spec"]["accessModes"],
                "storageClassName": claim["spec"].get("storageClassName", ""),
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {key: metadata[key] for key in ("namespace", "name", "uid")},
                "local": {"path": str(folder)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        }
        self._http.post("/api/v1/persistentvolumes", json=volume).raise_for_status()
        self._done.add(metadata["uid"])
