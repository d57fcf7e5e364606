"""The example plugin installs as a distribution, loads by its type, and gets pushes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import LibrdkafkaClient, Mode
from tests.testbed.process import wait_until
from tests.testbed.sidecar import Sidecar, config_for
from tests.unit.plugins.destinations import http_destination

EXAMPLE = Path(__file__).parents[2] / "examples" / "webhook-plugin"
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed from its own pyproject.toml, offline."""
    folder = tmp_path_factory.mktemp("site")
    uv = str(Path(sys.executable).with_name("uv"))
    options = ["--offline", "--no-deps", "--no-build-isolation", "--python", sys.executable]
    cache = tmp_path_factory.mktemp("uv-cache")
    command: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--quiet",
        *options,
        "--target",
        folder,
        "--cache-dir",
        cache,
        EXAMPLE,
    ]
    subprocess.run(command, check=True, timeout=120)
    return folder


@pytest.mark.full
def test_the_examples_own_test_passes_when_installed(site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_webhook.py").write_text((EXAMPLE / "test_webhook.py").read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", tmp_path],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout


def test_it_is_short_enough_to_read() -> None:
    """Under 50 lines of code: without blank lines, comments and docstrings."""
    lines: set[int] = set()
    text = (EXAMPLE / "kafka_telemetry_webhook.py").read_text()
    first_of_statement = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = token.type == tokenize.STRING and first_of_statement
        if token.type not in NO_CODE and not docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
        first_of_statement = token.type in NO_CODE
    assert 30 < len(lines) < 50


@pytest.mark.full
def test_a_sidecar_loads_it_by_its_type_and_clients_pushes_arrive(broker: KafkaBroker, site: Path) -> None:
    with contextlib.ExitStack() as running:
        destinations = {
            isolation: running.enter_context(http_destination()) for isolation in ("thread", "process")
        }
        config = config_for(broker)
        config["plugins"] = [
            {
                "type": "webhook",
                "name": isolation,
                "url": f"http://127.0.0.1:{destination.port}/telemetry",
                "token": f"of-the-webhook-in-a-{isolation}",
                "isolation": isolation,
            }
            for isolation, destination in destinations.items()
        ]
        name = "webhook"
        with Sidecar(config, env={"PYTHONPATH": str(site)}) as sidecar:
            sidecar.put_subscription("all", ["*"], interval_ms=1000)
            with LibrdkafkaClient(Mode.PRODUCER, bootstrap=sidecar.bootstrap(), topic=name, client_id=name):
                for destination in destinations.values():
                    wait_until(
                        lambda bodies=destination.bodies: len(bodies) >= 2,  # type: ignore[misc]
                        timeout_s=120,
                        what="two exports",
                    )
            assert sidecar.terminate() == 0
    for isolation, destination in destinations.items():
        lines = [json.loads(line) for body in destination.bodies for line in body.splitlines()]
        assert {line["client_id"] for line in lines} == {name}
        assert {line["principal"] for line in lines} == {"User:ANONYMOUS"}
        assert len({line["id"] for line in lines}) == len(lines)
        assert any(value["name"].startswith("org.apache.kafka.producer.") for value in lines[0]["values"])
        tokens = {headers["authorization"] for headers in destination.headers}
        assert tokens == {f"Bearer of-the-webhook-in-a-{isolation}"}
