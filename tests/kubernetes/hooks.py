"""Ends the Jobs of Helm hooks, because the testbed has no Job controller and no kubelet.

Everything else of a hook is real: Helm makes its objects in order, waits for the Job, and removes
them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from tests.kubernetes.objects import workloads
from tests.testbed.kubernetes import ApiServer

_EVERY_S: Final = 0.1
_ENDS: Final = {True: ("SuccessCriteriaMet", "Complete"), False: ("FailureTarget", "Failed")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A hook's Job that was ended.

    Attributes:
        name: Its name.
        workloads: What else was there when it ran, by ``Kind/name``.
    """

    name: str
    workloads: frozenset[str]


class HookEnds:
    """While it is entered, hooks' Jobs of a namespace end as soon as their pod was admitted.

    Args:
        server: Where they are.
        namespace: Their namespace.
        fails: What the names of those end with that fail; empty: none.

    Attributes:
        hooks: Those that ended, in order.
    """

    def __init__(self, server: ApiServer, namespace: str, *, fails: str = "") -> None:
        self.hooks: list[Hook] = []
        self._server = server
        self._namespace = namespace
        self._fails = fails
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.wait(_EVERY_S):
                for job in self._server.get(f"/apis/batch/v1/namespaces/{self._namespace}/jobs")["items"]:
                    if "helm.sh/hook" in job["metadata"].get("annotations", {}) and not job.get(
                        "status", {}
                    ).get("conditions"):
                        self._end(job)
        except BaseException as error:
            self._error = error

    def _end(self, job: dict[str, Any]) -> None:
        template = job["spec"]["template"]
        core = f"/api/v1/namespaces/{self._namespace}"
        for volume in template["spec"]["volumes"]:
            # A pod does not start before these are there.
            if "configMap" in volume:
                self._server.get(f"{core}/configmaps/{volume['configMap']['name']}")
        pod = {"metadata": {**template["metadata"], "generateName": "hook-"}, "spec": template["spec"]}
        self._server.http.post(f"{core}/pods", json=pod, params={"dryRun": "All"}).raise_for_status()
        name = job["metadata"]["name"]
        self.hooks.append(
            Hook(name=name, workloads=workloads(self._server, self._namespace) - {f"Job/{name}"})
        )
        succeeds = not self._fails or not name.endswith(self._fails)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in _ENDS[succeeds]]
        ended = {"completionTime": now, "succeeded": 1} if succeeds else {"failed": 1}
        self._server.http.patch(
            f"/apis/batch/v1/namespaces/{self._namespace}/jobs/{name}/status",
            json={"status": {"startTime": now, "conditions": conditions, **ended}},
            headers={"content-type": "application/merge-patch+json"},
        ).raise_for_status()
