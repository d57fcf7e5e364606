"""Before the cluster's subscriptions have ever been read: no client is silenced, and it is said."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.support import (
    GatewaySidecar,
    Raw,
    config,
    error_of_push,
    get_subscriptions,
    push,
    read_get,
)
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.scripted_broker import ScriptedBroker

_THROTTLED = 89


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def from_cluster(broker: ScriptedBroker, copy: Path) -> dict[str, Any]:
    """A sidecar whose subscriptions are those of a cluster that is away."""
    kafka = {"bootstrap_servers": f"{LOOPBACK}:{free_port()}"}
    return config(broker.port, subscriptions={"store": "kafka", "path": str(copy), "kafka": kafka})


@pytest.mark.full
def test_no_client_is_silenced_before_the_first_read(broker: ScriptedBroker, tmp_path: Path) -> None:
    with GatewaySidecar(from_cluster(broker, tmp_path / "copy.json")) as sidecar:
        # Ready, because clients' traffic needs no subscriptions.
        (warning,) = sidecar.http.get("/readyz").json()["warnings"]
        assert warning.startswith("no subscriptions are known yet, clients push nothing and ask again soon: ")
        assert sidecar.value("subscriptions_stale") == 1
        with Raw(sidecar.port()) as raw:
            answer = raw.exchange(get_subscriptions())
            error_code, instance, subscription_id = read_get(answer)
            codecs = answer[31] - 1
            (interval_ms,) = struct.unpack_from(">i", answer, 32 + codecs)
            assert (error_code, answer[-2:]) == (0, b"\1\0")  # no metrics
            assert 5_000 <= interval_ms <= 10_000
            # A client of another sidecar keeps its subscription, and waits for its next interval.
            pushed = raw.exchange(push(instance, subscription_id))
            assert error_of_push(pushed) == _THROTTLED
        assert not (tmp_path / "copy.json").exists()
