"""The distributions installed into an empty environment and run from an empty folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import httpx
import pytest
import yaml

from deploy.site.reference import PAGES
from tests.release.conftest import TREE, Distributions, build, install, install_wheel
from tests.release.test_contents import version_of_the_project
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess, wait_until

IMAGES = TREE / "deploy" / "images"
#: Variables of this tree's shell, which must not reach the installed programs.
CLEAN = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KAFKA_TELEMETRY"))
}


@pytest.fixture(scope="module")
def receiver(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``bin`` of an environment with the wheel and the packages of the receiver's image."""
    lock = IMAGES / "receiver" / "requirements.lock"
    return install(tmp_path_factory.mktemp("receiver"), lock, built.wheel)


@pytest.fixture(scope="module")
def rollup(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``bin`` of an environment with the sdist's wheel and the packages of the roll-up's image."""
    lock = IMAGES / "rollup" / "requirements.lock"
    return install(tmp_path_factory.mktemp("rollup"), lock, built.wheel_again)


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """A receiver's, in a folder of its own, in front of a broker that isn't there."""
    text = yaml.safe_dump(
        {
            "broker": {"id": 1, "cluster_id": "cluster"},
            "listeners": [
                {
                    "name": "CLIENT",
                    "bind": f"{LOOPBACK}:{free_port()}",
                    "upstream": f"{LOOPBACK}:{free_port()}",
                }
            ],
            "subscriptions": {"store": "sqlite", "path": "./subscriptions.db"},
            "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
            "plugins": [
                {"type": "console"},
                {"type": "otlp", "endpoint": f"http://{LOOPBACK}:4317", "protocol": "grpc"},
                {"type": "spool_files", "path": "./telemetry"},
                {"type": "prometheus", "bind": f"{LOOPBACK}:{free_port()}"},
                {
                    "type": "kafka_topic",
                    "bootstrap_servers": f"{LOOPBACK}:{free_port()}",
                    "topic": "telemetry",
                },
            ],
        }
    )
    path = tmp_path / "receiver.yaml"
    path.write_text(text)
    return path


def run(bin_: Path, *arguments: str | Path, cwd: Path) -> str:
    command = [bin_ / "kafka-telemetry", *arguments]
    done = subprocess.run(
        command, cwd=cwd, env=CLEAN, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("environment", ["receiver", "rollup"])
def test_the_command_prints_its_version(
    environment: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    bin_: Path = request.getfixturevalue(environment)
    assert (
        run(bin_, "--version", cwd=tmp_path)
        == f"kafka-telemetry {version_of_the_project()}\ndata path: python\n"
    )


def test_a_configuration_with_every_plugin_is_good(receiver: Path, configuration: Path) -> None:
    said = run(receiver, "config", "check", configuration, cwd=configuration.parent)
    assert said.startswith(f"{configuration}: good. Listeners: CLIENT")


def test_a_third_party_plugin_needs_only_the_public_name(
    receiver: Path, configuration: Path, tmp_path: Path
) -> None:
    _, wheel = build(TREE / "examples" / "webhook-plugin", tmp_path / "webhook")
    install_wheel(receiver.parent, wheel)
    settings = yaml.safe_load(configuration.read_text())
    settings["plugins"] = [{"type": "webhook", "url": f"http://{LOOPBACK}:9/"}]
    configuration.write_text(yaml.safe_dump(settings))
    output = run(receiver, "config", "check", configuration, cwd=configuration.parent)
    assert "Plugins: webhook" in output
    imports = (
        "import sys, kafka_telemetry_webhook as module\n"
        "from kafka_client_telemetry import plugin\n"
        "assert issubclass(module.WebhookReceiver, plugin.ClientTelemetryReceiver)\n"
        "assert 'site-packages' in plugin.__file__\n"
        "assert sys.modules['receiver.plugin'].ClientTelemetryReceiver is plugin.ClientTelemetryReceiver\n"
    )
    subprocess.run([receiver / "python", "-c", imports], cwd=tmp_path, env=CLEAN, check=True, timeout=600)


def test_the_sidecar_starts_answers_and_stops(receiver: Path, configuration: Path) -> None:
    rest = yaml.safe_load(configuration.read_text())["rest"]["bind"]
    server = ChildProcess(
        "installed sidecar",
        ["env", "-u", "PYTHONPATH", receiver / "kafka-telemetry", "serve", "--config", configuration],
        log=configuration.with_name("log"),
        cwd=configuration.parent,
    )
    try:
        wait_until(lambda: _answers(f"http://{rest}/livez"), timeout_s=120, what="/livez")
        ready = httpx.get(f"http://{rest}/readyz", timeout=5)
        # There is no broker, and the answer names this.
        assert ready.status_code == 503
        assert httpx.get(f"http://{rest}/metrics", timeout=5).is_success
    finally:
        assert server.terminate() == 0


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.TransportError:
        return False


def test_the_settings_of_the_rollup_are_those_of_the_docs(rollup: Path, tmp_path: Path) -> None:
    assert run(rollup, "rollup", "reference", cwd=tmp_path) == PAGES["rollup-settings"]()


def test_the_rollup_reads_its_data_files(rollup: Path, tmp_path: Path) -> None:
    read = (
        "from importlib.resources import files\n"
        "from spark_streaming.catalogue import plan\n"
        "assert plan(max_behind_s=60, max_ahead_s=60)\n"
        "package = files('spark_streaming')\n"
        "assert 'site-packages' in str(package)\n"
        "assert list(package.joinpath('postgres/schema').iterdir())\n"
    )
    subprocess.run([rollup / "python", "-c", read], cwd=tmp_path, env=CLEAN, check=True, timeout=600)


def test_without_the_rollup_the_error_names_the_extra(receiver: Path, tmp_path: Path) -> None:
    command = [
        str(receiver / "kafka-telemetry"),
        "rollup",
        "status",
        "--postgres",
        "postgresql://localhost/x",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=CLEAN, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 1
    assert "pip install 'kafka-client-telemetry[rollup]'" in done.stderr
