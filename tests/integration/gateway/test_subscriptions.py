"""Subscriptions of a real receiver: they end by themselves, are explained, and are events."""

from __future__ import annotations

import re
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from receiver.telemetry.subscription_document import time_to_text
from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    config,
    get_subscriptions,
    read_get,
)
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker

ATTACH: Final = Path(__file__).parents[3] / "docs" / "attach.md"
WORDS: Final = {"a minute": 60_000, "half a minute": 30_000}


def interval_ms(answer: bytes) -> int:
    """Of an answer to GetTelemetrySubscriptions: the push interval."""
    codecs = answer[31] - 1
    return int(struct.unpack_from(">i", answer, 32 + codecs)[0])


def test_the_next_question_takes_up_a_put_and_comes_when_the_page_says() -> None:
    says = re.search(
        r"no subscription\s+matches asks again after ([a-z ]+) \(`telemetry\.default_interval_ms`\)",
        ATTACH.read_text(),
    )
    assert says is not None
    with (
        ScriptedBroker() as broker,
        GatewaySidecar(config(broker.port)) as sidecar,
        Raw(sidecar.port()) as raw,
    ):
        answer = raw.exchange(get_subscriptions())
        _, instance, nothing = read_get(answer)
        assert answer.endswith(b"\1\0")  # no metrics
        assert interval_ms(answer) == WORDS[says[1]]
        asked = sidecar.http.get("/v1/clients").json()["items"][0]["push_interval_ms"]
        assert asked == WORDS[says[1]]

        sidecar.put_subscription("all", ["*"], 5_000)
        answer = raw.exchange(get_subscriptions(instance))
        assert interval_ms(answer) == 5_000
        assert read_get(answer)[2] != nothing


@pytest.mark.full
def test_a_subscription_ends_by_itself() -> None:
    body = {"metrics": ["org.apache.kafka."], "interval_ms": 100}
    with ScriptedBroker() as broker, GatewaySidecar(config(broker.port)) as sidecar:
        sidecar.http.put("/v1/subscriptions/debug", json=body).raise_for_status()
        with Raw(sidecar.port("CLIENT")) as raw:
            _, instance, first = read_get(raw.exchange(get_subscriptions()))
            (client,) = sidecar.clients()
            explained = sidecar.http.get(f"/v1/clients/{client['client_instance_id']}/explain").json()
            assert [subscription["name"] for subscription in explained["subscriptions"]] == ["debug"]
            assert explained["asked_within_ms"] <= 450_000
            dry = sidecar.http.post("/v1/explain", json={"metrics": ["*"]}).json()
            assert (dry["matched"], dry["clients"]) == (1, 1)

            end = time_to_text(datetime.now(UTC) + timedelta(seconds=1))
            sidecar.http.patch("/v1/subscriptions/debug", json={"expires_at": end}).raise_for_status()

            def ended() -> bool:
                state: str = sidecar.http.get("/v1/subscriptions/debug").json()["state"]
                logged = sidecar.logged("subscription expired")
                return state == "expired" and len(logged) == 1

            wait_until(ended, timeout_s=TIMEOUT_S, what="the end of the subscription")
            _, same, second = read_get(raw.exchange(get_subscriptions(instance)))
            assert same == instance
            assert second != first
        seen = [
            (item["type"], item["subscription"]) for item in sidecar.http.get("/v1/events").json()["items"]
        ]
        assert ("subscription_created", "debug") in seen
        assert ("subscription_expired", "debug") in seen
        assert "client_created" in {kind for kind, _ in seen}
