"""Fixtures of the gateway tests: a broker for each test, and shared certificates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbed.scripted_broker import ScriptedBroker
from tests.unit.gateway.tls import Certificates, issue


@pytest.fixture(scope="package")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A broker that answers as one does."""
    with ScriptedBroker() as started:
        yield started
