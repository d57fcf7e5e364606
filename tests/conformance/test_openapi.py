"""The REST API keeps the promises of its OpenAPI document, by thousands of generated requests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.exploration import SEED, as_number
from tests.unit.api.conftest import ask, connection
from tests.unit.cli.conftest import Sidecar, served

_CONFIGURATION = Path(__file__).with_name("schemathesis.toml")


@pytest.mark.full
@pytest.mark.timeout(3600)  # a minute on a machine at rest
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    """It sends valid and wrong requests, also one after another, and checks each answer."""
    with served(Sidecar(tmp_path / "subscriptions.db")) as sidecar:
        for number in range(2, 20):
            ask(sidecar.telemetry, number, 1000.0, client_id=f"client-{number}")
        sidecar.connections.extend(connection(number) for number in range(5))
        program = Path(sys.executable).with_name("schemathesis")
        command = [program, "--config-file", _CONFIGURATION, "--no-color", "run"]
        seed = str(as_number(SEED)) if SEED else "1"
        options = ["--max-examples", "25", "--seed", seed, f"{sidecar.url}/openapi.json"]
        result = subprocess.run(
            [*map(str, command), *options], cwd=tmp_path, capture_output=True, text=True, check=False
        )
    assert result.returncode == 0, result.stdout[-8000:]
