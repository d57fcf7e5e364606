"""What the bridge's tests share: the jar, the token, and a broker with the bridge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.bridge.peer import TOKEN
from tests.testbed import parts


@pytest.fixture(scope="session")
def jar() -> Path:
    """The bridge, as `make bridge` builds it."""
    return parts.BRIDGE.require() / "kafka-telemetry-bridge.jar"


@pytest.fixture(scope="session")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the token."""
    file = tmp_path_factory.mktemp("bridge") / "token"
    file.write_bytes(TOKEN + b"\n")
    return file
