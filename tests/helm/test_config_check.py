"""The chart's hook lets the receiver check what the chart renders, and names the values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from receiver.cli import app
from tests.helm.features import Rendered
from tests.testbed.helm import Helm, Manifest, of_kind, parse

pytestmark = pytest.mark.full

_CONFIG: Final = "/etc/kafka-telemetry"
_GATEWAY: Final[Mapping[str, Any]] = {"sidecar": {"enabled": False}}
_BROKERS: Final = [
    {"id": 1, "upstream": "broker-1:9092", "port": 19092},
    {"id": 2, "upstream": "broker-2:9092", "port": 19093},
]
_TLS: Final = {"cert_file": "/run/secrets/tls/a.crt", "key_file": "/run/secrets/tls/a.key"}


def _run_hook(manifests: list[Manifest], folder: Path) -> tuple[int, list[str]]:
    """Run what the hook's containers run, with their files and variables."""
    (job,) = (item for item in of_kind(manifests, "Job") if _component(item) == "config-check")
    (files,) = (item for item in of_kind(manifests, "ConfigMap") if _component(item) == "config-check")
    for name, text in files["data"].items():
        (folder / name).write_text(text)
    status, lines = 0, list[str]()
    for container in job["spec"]["template"]["spec"]["containers"]:
        arguments = [text.replace(_CONFIG, str(folder)) for text in container["args"]]
        environment = {entry["name"]: entry["value"] for entry in container.get("env", ())}
        done = CliRunner().invoke(app, arguments, env=environment)
        status = max(status, done.exit_code)
        lines += [line.removeprefix("kafka-telemetry: ") for line in done.stderr.splitlines()]
    return status, lines


def _component(manifest: Manifest) -> str:
    component: str = manifest["metadata"]["labels"]["app.kubernetes.io/component"]
    return component


def test_each_features_configuration_is_accepted(rendered: Rendered, tmp_path: Path) -> None:
    manifests = list(rendered.manifests)
    parts = {
        _component(item)
        for item in of_kind(manifests, "ConfigMap")
        if _component(item) in {"sidecar", "gateway", "config-check"}
    }
    if "config-check" not in parts:
        # A roll-up alone, or switched off.
        assert parts == set() or rendered.name == "crds-pod-monitor.yaml"
        return
    assert _run_hook(manifests, tmp_path) == (0, [])


@pytest.mark.parametrize(
    ("values", "mistakes"),
    [
        pytest.param(
            {
                "config": {
                    "listeners": [{"name": "A", "bind": "0.0.0.0:19092", "upstream": "a b:9092"}],
                    "telemetry": {"max_inflated_bytes": 5000},
                    "plugins": [{"type": "otlp", "endpoint": "collector:4317"}, {"type": "oltp"}],
                }
            },
            [
                'config.listeners[0].upstream: "a b:9092": ',
                "config.telemetry.max_inflated_bytes: 5000: must not be less than telemetry.max_bytes",
                "config.plugins[0].endpoint: ",
                'config.plugins[1].type: "oltp": unknown plugin type',
            ],
            id="sidecar",
        ),
        pytest.param(
            {
                "config": {
                    "rest": {"tokens": [{"name": "ops", "role": "viewer", "sha256": "ab" * 32}]},
                },
                "tokens": [{"name": "ops", "role": "editor", "secretName": "tokens", "key": "ops"}],
            },
            ['tokens[0].name: "ops": the same as '],
            id="tokens",
        ),
        pytest.param(
            {
                **_GATEWAY,
                "gateway": {
                    "enabled": True,
                    "listener": {"proxy_protocol": {"from": ["lan"]}},
                    "brokers": [
                        {**_BROKERS[0], "upstream": "broker-1:99999"},
                        {**_BROKERS[1], "listener": {"tls": _TLS, "advertised": "a:99999"}},
                    ],
                },
            },
            [
                'gateway.brokers[0].upstream: "broker-1:99999": ',
                'gateway.brokers[1].listener.advertised: "a:99999": ',
                'gateway.listener.proxy_protocol.from[0]: "lan": ',
                'gateway.listener.proxy_protocol.from[0]: "lan": ',
            ],
            id="gateway",
        ),
        pytest.param(
            {
                **_GATEWAY,
                "gateway": {
                    "enabled": True,
                    "brokers": [_BROKERS[0], {**_BROKERS[1], "port": 19092}],
                },
            },
            ['gateway.brokers[1].port: "0.0.0.0:19092": listeners[0] listens on'],
            id="one port twice",
        ),
        pytest.param(
            {**_GATEWAY, "gateway": {"enabled": True, "rewrite": {"upstream": "a:9092", "host": "gw"}}},
            ["gateway.rewrite.firstPort: required: the port of node 0"],
            id="rewrite",
        ),
        pytest.param(
            {
                **_GATEWAY,
                "bridge": {
                    "enabled": True,
                    "port": 8642,
                    "token": {"secretName": "token"},
                    "tls": {"secretName": "certificate"},
                },
            },
            ["bridge.port"],
            id="bridge at the port of REST",
        ),
        pytest.param(
            {"extraEnv": [{"name": "KAFKA_TELEMETRY_LOG__LEVEL", "value": "loud"}]},
            ['environment: KAFKA_TELEMETRY_LOG__LEVEL: "loud": expected one of'],
            id="variable",
        ),
    ],
)
def test_a_mistake_is_shown_with_its_place_in_the_values(
    helm: Helm, values: Mapping[str, Any], mistakes: list[str], tmp_path: Path
) -> None:
    status, lines = _run_hook(parse(helm.template(values)), tmp_path)
    assert status == 2
    assert len(lines) == len(mistakes), lines
    for mistake in mistakes:
        assert any(line.startswith(mistake) for line in lines), (mistake, lines)


def test_the_hook_needs_nothing_but_its_own_files(helm: Helm) -> None:
    values = {
        "tokens": [{"name": "ops", "role": "editor", "secretName": "tokens", "key": "ops"}],
        "secretMounts": [{"secretName": "tls", "mountPath": "/run/secrets/tls"}],
        "extraEnv": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "a"}}}],
        "envFrom": [{"secretRef": {"name": "a"}}],
    }
    (job,) = of_kind(parse(helm.template(values)), "Job")
    pod = job["spec"]["template"]["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["kafka-telemetry-config", "kafka-telemetry-tmp"]
    assert "secretKeyRef" not in str(pod)
    assert "secretRef" not in str(pod)
