"""What `helm test` runs proves a real receiver with the chart's configuration."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from receiver.cli import app
from tests.helm.configurations import configurations
from tests.testbed.broker import SASL_USERS, KafkaBroker, Listener
from tests.testbed.helm import Helm, Manifest, of_kind, parse
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.sidecar import Sidecar

TOKENS = [{"name": "ops", "role": "viewer", "secretName": "tokens", "key": "ops"}]


def doctor_arguments(manifests: Sequence[Manifest], config: Path) -> list[str]:
    """Return what the one pod of `helm test` runs, on this machine."""
    (pod,) = of_kind(manifests, "Pod")
    (container,) = pod["spec"]["containers"]
    arguments = [
        str(config) if text == "/etc/kafka-telemetry/config.yaml" else text for text in container["args"]
    ]
    arguments[arguments.index("--host") + 1] = LOOPBACK
    return arguments


def gateway_values(broker: KafkaBroker, listener: Listener) -> dict[str, Any]:
    """Values of a gateway in front of one listener of a broker on this machine."""
    return {
        "sidecar": {"enabled": False},
        "tokens": TOKENS,
        "config": {
            "rest": {"bind": f"0.0.0.0:{free_port()}"},
            "plugins": [{"type": "console", "delivery": "memory"}],
        },
        "gateway": {
            "enabled": True,
            "replicas": 1,
            "listener": {"security_protocol": listener.security_protocol},
            "brokers": [
                {
                    "id": broker.node_id,
                    "upstream": f"{LOOPBACK}:{broker.port(listener.name)}",
                    "port": listener.advertised_port,
                }
            ],
        },
    }


def prove(helm: Helm, values: Mapping[str, Any], folder: Path, secret_files: Mapping[str, str]) -> None:
    """Run what `helm test` runs, without and with the receiver."""
    manifests = parse(helm.template(values))
    (configuration,) = configurations(manifests)
    written = configuration.write(folder)
    token = secrets.token_urlsafe()
    for path, secret in {"/run/secrets/kafka-telemetry/tokens/ops": token, **secret_files}.items():
        (folder / path.lstrip("/")).write_text(secret)
    # The folder of the receiver's volume.
    text = written.read_text()
    written.write_text(text + f"\nsubscriptions: {{path: {folder}/subscriptions.db}}\n")
    arguments = doctor_arguments(manifests, written)
    config = yaml.safe_load(written.read_text())
    assert CliRunner().invoke(app, arguments).exit_code == 1  # nothing runs yet
    with Sidecar(config, token=token):
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert [secret for secret in (token, *secret_files.values()) if secret in result.output] == []


def test_the_test_pod_proves_its_receiver(helm: Helm, tmp_path: Path) -> None:
    with KafkaBroker(advertised_client_port=free_port()) as broker:
        prove(helm, gateway_values(broker, broker.listeners[0]), tmp_path, {})


@pytest.mark.full
def test_the_test_pod_proves_a_receiver_that_logs_in(helm: Helm, tmp_path: Path) -> None:
    sasl = Listener(name="LOGIN", security_protocol="SASL_PLAINTEXT", advertised_port=free_port())
    password = "/run/secrets/broker/password"
    with KafkaBroker(listeners=[sasl]) as broker:
        values = gateway_values(broker, broker.listeners[1])
        values["config"]["broker"] = {"login": {"username": "bob", "password": {"file": password}}}
        values["secretMounts"] = [{"secretName": "broker", "mountPath": "/run/secrets/broker"}]
        prove(helm, values, tmp_path, {password: SASL_USERS["bob"]})
