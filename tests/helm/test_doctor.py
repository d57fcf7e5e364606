"""What `helm test` runs proves a real receiver with the chart's configuration."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from receiver.cli import app
from tests.helm.configurations import configurations
from tests.testbed.broker import KafkaBroker
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


def test_the_test_pod_proves_its_receiver(helm: Helm, tmp_path: Path) -> None:
    with KafkaBroker(advertised_client_port=free_port()) as broker:
        (listener,) = (item for item in broker.listeners if item.name == "CLIENT")
        values: Mapping[str, Any] = {
            "sidecar": {"enabled": False},
            "tokens": TOKENS,
            "config": {
                "rest": {"bind": f"0.0.0.0:{free_port()}"},
                "plugins": [{"type": "console", "delivery": "memory"}],
            },
            "gateway": {
                "enabled": True,
                "replicas": 1,
                "brokers": [
                    {"id": broker.node_id, "upstream": broker.bootstrap, "port": listener.advertised_port}
                ],
            },
        }
        manifests = parse(helm.template(values))
        (configuration,) = configurations(manifests)
        written = configuration.write(tmp_path)
        token = secrets.token_urlsafe()
        (tmp_path / "run/secrets/kafka-telemetry/tokens/ops").write_text(token)
        # The folder of the receiver's volume.
        text = written.read_text()
        written.write_text(text + f"\nsubscriptions: {{path: {tmp_path}/subscriptions.db}}\n")
        arguments = doctor_arguments(manifests, written)
        config = yaml.safe_load(written.read_text())
        assert CliRunner().invoke(app, arguments).exit_code == 1  # nothing runs yet
        with Sidecar(config, token=token):
            result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        assert token not in result.output
