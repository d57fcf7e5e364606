"""Finds the configurations in a feature's manifests, with their containers' mounts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.testbed.helm import Manifest, of_kind, pod_templates

#: Where the chart mounts the files of subscriptions and owners, by their ConfigMap's component.
_FOLDERS: Final = {name: f"/etc/kafka-telemetry-{name}" for name in ("subscriptions", "owners")}
_SECRET_PATH: Final = re.compile(r"/run/secrets/[\w./-]+")
#: The environment of a sidecar in another chart's pod, where the downward API sets it.
_BROKER_ID: Final = {"KAFKA_TELEMETRY_BROKER__ID": "1"}
#: The content of a secret's file, which is also a valid PostgreSQL URL.
_SECRET: Final = "postgresql://telemetry@postgres.example.com/telemetry"
#: The content of a web configuration file.
_WEB: Final = "basic_auth_users: {prometheus: $2b$10$xDUtqJGsH.fI1bqbEgiNyewkzcw517kgvevfRwsj3Ab4hB/1HkVfS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The configuration of one container.

    Attributes:
        name: The ConfigMap and its key.
        text: The YAML.
        rollup: Whether a roll-up reads it, and not a receiver.
        environment: The container's variables that stand in its manifest.
        files: The files of subscriptions and owners, by path, if the chart writes them.
        mounts: The folders that are mounted into it; None where it is in another chart's pod.
    """

    name: str
    text: str
    rollup: bool
    environment: Mapping[str, str]
    files: Mapping[str, str]
    mounts: Sequence[str] | None

    @property
    def secret_files(self) -> set[str]:
        """The files of secrets that it names."""
        return set(_SECRET_PATH.findall(self.text))

    def write(self, folder: Path) -> Path:
        """Write it into ``folder``, with files there in place of the pod's own."""
        for path in self.secret_files:
            file = folder / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_WEB if file.name == "web.yml" else _SECRET)
        written = folder / "config.yaml"
        text = _SECRET_PATH.sub(lambda found: f"{folder}{found[0]}", self.text)
        for path, content in self.files.items():
            file = folder / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        for mounted in {str(Path(path).parent) for path in self.files}:
            text = text.replace(mounted, str(folder / mounted.lstrip("/")))
        written.write_text(text)
        return written


def configurations(manifests: Sequence[Manifest]) -> list[Configuration]:
    """Every configuration that manifests have."""
    readers = dict(_readers(manifests))
    files = {
        f"{mounted}/{name}": text
        for item in of_kind(manifests, "ConfigMap")
        if (mounted := _FOLDERS.get(item["metadata"]["labels"]["app.kubernetes.io/component"]))
        for name, text in item["data"].items()
    }
    found = []
    for item in of_kind(manifests, "ConfigMap"):
        component = item["metadata"]["labels"]["app.kubernetes.io/component"]
        # Dashboards are ConfigMaps too.
        if component not in {"sidecar", "gateway", "bridge", "rollup", "rollup-migrate"}:
            continue
        for key, text in item["data"].items():
            name = item["metadata"]["name"]
            container = readers.get((name, key)) or readers.get((name, None))
            found.append(
                Configuration(
                    name=f"{name}/{key}",
                    text=text,
                    rollup=component.startswith("rollup"),
                    environment=_environment(container) if container else _BROKER_ID,
                    files={} if component.startswith("rollup") else files,
                    mounts=[mount["mountPath"] for mount in container["volumeMounts"]] if container else None,
                )
            )
    return found


def _readers(manifests: Sequence[Manifest]) -> Iterator[tuple[tuple[str, str | None], Mapping[str, Any]]]:
    pods = [template["spec"] for template in pod_templates(manifests).values()]
    pods += [
        {"volumes": entry["spec"]["volumes"], "containers": [entry["spec"]["driver"]]}
        for entry in of_kind(manifests, "SparkApplication")
    ]
    for pod in pods:
        sources = {volume["name"]: volume["configMap"] for volume in pod["volumes"] if "configMap" in volume}
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            for mount in container["volumeMounts"]:
                source = sources.get(mount["name"])
                if source is not None:
                    keys = [item["key"] for item in source.get("items", ())] or [None]
                    yield from (((source["name"], key), container) for key in keys)


def _environment(container: Mapping[str, Any]) -> dict[str, str]:
    return {item["name"]: item.get("value", "1") for item in container.get("env", ())}
