"""Real Kafka clients in pods: Java, librdkafka and franz-go, and what each saw.

They are the testbed's programs, which report in JSON lines (:mod:`tests.testbed.clients`). They and
their libraries are folders of this machine; only their operating system is an image.
"""

from __future__ import annotations

import datetime
import itertools
import json
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.images.engine import TREE
from tests.testbed import cache, parts
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.kubernetes import KubectlError
from tests.testbed.node.images import KAFKA
from tests.testbed.node.node import Node
from tests.testbed.security import Security

NAMESPACE: Final = "clients"
CONTAINER: Final = "client"
#: The Secret with the certificate authority of clients that speak TLS, and its file in their pods.
AUTHORITY: Final = "authority"
AUTHORITY_FILE: Final = Path("/run/authority/ca.crt")
_KINDS: Final[Mapping[str, type[Client]]] = {
    kind.language: kind for kind in (JavaClient, LibrdkafkaClient, FranzClient)
}
LANGUAGES: Final = tuple(_KINDS)
_PACKAGES: Final = Path(sysconfig.get_path("platlib"))


def _program(language: str) -> Sequence[str]:
    if language == "java":
        jars = f"{parts.KAFKA.require() / 'jars'}/*:{parts.JAVA_PROGRAMS.require() / 'testbed.jar'}"
        flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
        return ("java", *flags, "-cp", jars, "kafkatelemetry.testbed.Client")
    if language == "librdkafka":
        return ("/usr/bin/python3", "-m", "tests.testbed.clients.librdkafka")
    return (str(parts.FRANZ_CLIENT.require() / "franz-client"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a client had done by a moment.

    Attributes:
        at: When, in seconds since the epoch.
        records: Records that were acknowledged or received.
        errors: Failed records and other errors.
    """

    at: float
    records: int
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClient:
    """A client in a pod.

    Attributes:
        node: Where it runs.
        name: Its client id and its pod's name.
    """

    node: Node
    name: str

    def lines(self) -> Iterator[tuple[float, dict[str, Any]]]:
        """What it has reported, with the time of each line."""
        try:
            text = self.node.kubectl("logs", self.name, f"--namespace={NAMESPACE}", "--timestamps")
        except KubectlError:  # its container starts
            return
        for line in text.splitlines():
            stamp, _, report = line.partition(" ")
            if report.startswith("{"):
                # Go's nanoseconds are more than Python's microseconds.
                at = datetime.datetime.fromisoformat(f"{stamp[:26].rstrip('Z')}+00:00")
                yield at.timestamp(), json.loads(report)

    def counts(self, since: float = 0.0) -> list[Counts]:
        """Its counts of each second from a moment on."""
        return [
            Counts(at=at, records=report["records"], errors=report["errors"])
            for at, report in self.lines()
            if report["event"] == "counts" and at >= since
        ]

    @property
    def records(self) -> int:
        """Records so far."""
        counts = self.counts()
        return counts[-1].records if counts else 0

    @property
    def errors(self) -> list[str]:
        """The messages of its errors so far."""
        return [str(report["message"]) for _, report in self.lines() if report["event"] == "error"]

    @property
    def failed_records(self) -> list[str]:
        """Why records failed: librdkafka reports lost connections too, which it repairs."""
        every = self.errors
        return [error for error in every if "MSG" in error] if "librdkafka" in self.name else every

    def longest_wait_s(self, since: float) -> float:
        """The longest time without progress from a moment on, in whole seconds of its reports."""
        longest = 0.0
        moved = since
        for before, after in itertools.pairwise(self.counts(since)):
            if after.records > before.records:
                longest = max(longest, after.at - moved)
                moved = after.at
        return longest

    def wait_for_progress(self, more: int = 20) -> None:
        """Wait until it has got so many records through from now on.

        Raises:
            WaitTimeoutError: It has not.
        """
        wanted = self.records + more
        self.node.wait_until(
            lambda: self.records >= wanted, what=f"{more} records of {self.name}", every_s=0.5
        )


def manifest(
    language: str,
    mode: Mode,
    *,
    name: str,
    bootstrap: str,
    topic: str,
    rate: float = 20.0,
    count: int = -1,
    security: Security | None = None,
) -> Mapping[str, Any]:
    """Return the pod of a client, whose ``count`` of -1 records has no end."""
    arguments = {
        "--properties": "/tmp/client.properties",
        "--mode": str(mode),
        "--bootstrap": bootstrap,
        "--topic": topic,
        "--client-id": name,
        "--group": f"{topic}-{name}",
        "--rate": str(rate),
        "--count": str(count),
    }
    words = [*_program(language), *(word for pair in arguments.items() for word in pair)]
    # The class is not started: it knows the library's own words.
    described = _KINDS[language](mode, bootstrap=bootstrap, topic=topic, security=security)
    properties = "".join(f"{key}={value}\n" for key, value in described.properties.items())
    folders = {"cache": cache.cache_folder(), "tree": TREE, "packages": _PACKAGES}
    volumes: list[dict[str, Any]] = [
        {"name": volume, "hostPath": {"path": str(folder)}} for volume, folder in folders.items()
    ]
    mounts = [
        {"name": volume, "mountPath": str(folder), "readOnly": True} for volume, folder in folders.items()
    ]
    if security is not None and security.ca is not None:
        volumes.append({"name": "authority", "secret": {"secretName": AUTHORITY}})
        mounts.append({"name": "authority", "mountPath": str(security.ca.parent), "readOnly": True})
    container = {
        "name": CONTAINER,
        "image": KAFKA,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", 'printf %s "$PROPERTIES" >/tmp/client.properties; exec "$@"', "sh", *words],
        "workingDir": "/tmp",
        # This machine's folders may be below a folder of root's.
        "securityContext": {"runAsUser": 0},
        "env": [
            {"name": "PYTHONPATH", "value": f"{TREE}:{_PACKAGES}"},
            {"name": "PROPERTIES", "value": properties},
        ],
        "volumeMounts": mounts,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name, "kind": "client"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "enableServiceLinks": False,
            "containers": [container],
            "volumes": volumes,
        },
    }


@contextmanager
def clients(
    node: Node,
    *wanted: tuple[str, Mode],
    bootstrap: str,
    topic: str,
    rate: float = 20.0,
    count: int = -1,
    security: Security | None = None,
) -> Iterator[list[PodClient]]:
    """Start clients, each of a language and a mode, and wait until all of them make progress."""
    started = []
    for language, mode in wanted:
        name = f"{topic}-{language}-{mode}"
        node.apply(
            manifest(
                *(language, mode),
                name=name,
                bootstrap=bootstrap,
                topic=topic,
                rate=rate,
                count=count,
                security=security,
            )
        )
        started.append(PodClient(node=node, name=name))
    try:
        for client in started:
            client.wait_for_progress()
        yield started
    finally:
        names = [client.name for client in started]
        node.kubectl("delete", "pod", f"--namespace={NAMESPACE}", "--grace-period=1", *names)
