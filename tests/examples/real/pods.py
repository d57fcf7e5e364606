"""Runs the Kubernetes example's pods as local processes, from the chart's manifests.

Each pod has an address of loopback for its own, so ports are as they stand there, and names of pods
and Services become these addresses. There is no kubelet: what it does of a container (probes,
volumes, users, the order of starts and ends) is not tried.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import httpx

from tests.examples.compose import replaced
from tests.examples.real import kafka
from tests.testbed.helm import Manifest, of_kind
from tests.testbed.process import ChildProcess, ScratchFolder, wait_until

TOKEN: Final = "a-token-of-the-example"
_READY_WITHIN_S: Final = 120.0


class Pods:
    """The StatefulSet's pods, each a broker and its sidecar.

    Args:
        manifests: What the chart renders.
        collector: What stands in the place of the OTLP endpoint, ``host:port``.

    Attributes:
        addresses: Of the pods, in their order.
        processes: What runs.
    """

    def __init__(self, manifests: list[Manifest], *, collector: str) -> None:
        (self._set,) = of_kind(manifests, "StatefulSet")
        self._config = {item["metadata"]["name"]: item["data"] for item in of_kind(manifests, "ConfigMap")}
        # Other programs rarely use this network.
        network = f"127.{random.randint(1, 254)}.{random.randint(0, 255)}"
        self.addresses = [f"{network}.{number + 1}" for number in range(self._set["spec"]["replicas"])]
        self._collector = collector
        self._stack = ExitStack()
        self.processes: list[ChildProcess] = []

    def __enter__(self) -> Self:
        try:
            folder = self._stack.enter_context(ScratchFolder("pods")).path
            for number in range(len(self.addresses)):
                self._start_sidecar(number, folder / str(number))
            for number in range(len(self.addresses)):
                self._start_broker(number, folder / str(number))
            for address in self.addresses:
                wait_until(
                    lambda: self.rest(address, "/readyz").is_success,  # noqa: B023
                    timeout_s=_READY_WITHIN_S,
                    what=f"/readyz of {address}",
                    every_s=0.5,
                )
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @staticmethod
    def rest(address: str, path: str, body: object = None) -> httpx.Response:
        """Ask a pod's sidecar; PUT where there is a body."""
        return httpx.request(
            "GET" if body is None else "PUT",
            f"http://{address}:8642{path}",
            headers={"authorization": f"Bearer {TOKEN}"},
            json=body,
            timeout=10.0,
            trust_env=False,
        )

    def _start_sidecar(self, number: int, folder: Path) -> None:
        (container,) = self._set["spec"]["template"]["spec"]["initContainers"]
        (tokens := folder / "tokens").mkdir(parents=True)
        (tokens / "ops").write_text(TOKEN)
        places = {**self._places(number, folder), "/run/secrets/kafka-telemetry/tokens": tokens}
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in self._set["spec"]["template"]["spec"]["volumes"]}
        config = self._config[volumes[mounts["/etc/kafka-telemetry"]]["configMap"]["name"]]
        for name, text in config.items():
            (folder / name).write_text(replaced(text, places))
        command = [word.replace("/etc/kafka-telemetry", str(folder)) for word in container["args"]]
        self._start(number, "sidecar", [Path(sys.executable).with_name("kafka-telemetry"), *command], folder)
        wait_until(lambda: self._lives(number), timeout_s=120, what="/livez")

    def _lives(self, number: int) -> bool:
        try:
            return self.rest(self.addresses[number], "/livez").is_success
        except httpx.TransportError:
            return False

    def _start_broker(self, number: int, folder: Path) -> None:
        environment = self._environment(number, "containers", folder)
        properties = kafka.set_up(folder / "kafka", environment)
        self._start(number, "kafka", [*kafka.java(environment), "kafka.Kafka", properties], folder)

    def _start(self, number: int, name: str, command: list[str | Path], folder: Path) -> None:
        group = "initContainers" if name == "sidecar" else "containers"
        child = ChildProcess(
            f"{name} {number}",
            command,
            log=folder / f"{name}.log",
            env=self._environment(number, group, folder),
            cwd=folder,
        )
        self._stack.callback(child.kill)
        self.processes.append(child)

    def _environment(self, number: int, group: str, folder: Path) -> dict[str, str]:
        """A container's variables, as the kubelet makes them."""
        (container,) = self._set["spec"]["template"]["spec"][group]
        fields = {
            "metadata.name": f"{self._set['metadata']['name']}-{number}",
            "metadata.labels['apps.kubernetes.io/pod-index']": str(number),
        }
        made: dict[str, str] = {}
        for variable in container["env"]:
            value = _value(variable, fields)
            made[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda found: made[found[1]], value)
        places = self._places(number, folder)
        return {name: replaced(value, places) for name, value in made.items()}

    def _places(self, number: int, folder: Path) -> dict[str, object]:
        name, namespace = self._set["metadata"]["name"], self._set["metadata"]["namespace"]
        domain = f"{self._set['spec']['serviceName']}.{namespace}.svc.cluster.local"
        own = self.addresses[number]
        return {
            **{f"{name}-{other}.{domain}": address for other, address in enumerate(self.addresses)},
            **{
                f"{name}-{other}.{namespace}.svc.cluster.local": address
                for other, address in enumerate(self.addresses)
            },
            domain: self.addresses[0],
            # The pod's own addresses: all of them, and its loopback.
            "0.0.0.0": own,
            "127.0.0.1": own,
            "://:": f"://{own}:",
            "otel-collector.monitoring:4317": self._collector,
            "/var/lib/kafka/data": folder / "data",
        }


def _value(variable: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    if "value" in variable:
        return str(variable["value"])
    return fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
