"""A sidecar that translates all RPCs (KIP-1313), at the shared broker's advertised address."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.gateway.support import GatewaySidecar
from tests.testbed.broker import KafkaBroker
from tests.testbed.sidecar import config_for


@pytest.fixture(scope="package")
def translating(broker: KafkaBroker) -> Iterator[GatewaySidecar]:
    settings = config_for(broker) | {"kip1313": {"translate_all": True}, "log": {"requests": True}}
    with GatewaySidecar(settings) as started:
        yield started
