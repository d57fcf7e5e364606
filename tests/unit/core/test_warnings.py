"""What /readyz warns of, by the state that it sees."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from receiver.brokers.listener_broker import KnownBroker
from receiver.brokers.listener_state import ListenerState
from receiver.core.warnings import (
    bypass_warnings,
    certificate_warnings,
    clock_warnings,
    prefix_warnings,
    subscription_warnings,
)
from receiver.settings.listeners import ListenerSettings
from receiver.telemetry.clocks import ClientClocks
from receiver.telemetry.identity import Broker
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from tests.unit.api.conftest import instance_id
from tests.unit.telemetry.parts import Client

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
DAY_S = 86_400.0


def test_clients_that_pass_by() -> None:
    settings = ListenerSettings.model_validate(
        {"name": "A", "bind": "0.0.0.0:19092", "upstream": "127.0.0.1:29092"}
    )

    def warned(advertised: str) -> list[str]:
        known = KnownBroker(broker=Broker(id=1), advertised=advertised)
        return list(bypass_warnings([ListenerState(settings=settings, known=known, connections=0)]))

    assert warned("kafka:19092") == []
    (line,) = warned("kafka:29092")
    assert line.startswith("listener A: the broker advertises kafka:29092, its own port")


def test_certificates() -> None:
    now_s = NOW.timestamp()
    lines = list(
        certificate_warnings(
            [
                ("GOOD", "client", now_s + 14 * DAY_S),
                ("SOON", "client", now_s + 13 * DAY_S),
                ("GONE", "upstream", now_s - 60),
            ],
            NOW,
        )
    )
    assert lines == [
        "the certificate of SOON expires in 13 d (2026-12-12 12:00 UTC): replace its files, which are read "
        "at once",
        "the certificate of GONE for the broker has expired (2026-11-29 11:59 UTC): replace its files, which "
        "are read at once",
    ]


def test_no_subscription() -> None:
    def warned(*subscriptions: Subscription, has_plugins: bool = True) -> list[str]:
        return list(subscription_warnings(SubscriptionSet(subscriptions), NOW, has_plugins=has_plugins))

    active = Subscription("a", ("*",), 10_000)
    ended = Subscription("b", ("*",), 10_000, expires_at=NOW - timedelta(seconds=1))
    assert warned(active, ended) == []
    assert warned()[0].startswith("there is no subscription, so clients push nothing: put one")
    assert warned(ended)[0].startswith("no subscription is active, so clients push nothing")
    # Without a plugin no subscription helps.
    for subscriptions in ((), (active,)):
        (only,) = warned(*subscriptions, has_plugins=False)
        assert only.startswith("there is no plugin, so clients are asked for nothing")


def test_a_misspelt_prefix_is_told_once_its_client_pushes() -> None:
    typo = Subscription("typo", ("producer.", "org.apache.kafka.consumer."), 60_000)
    client = Client(
        typo,
        Subscription("own", ("my.app.",), 60_000),
        Subscription("none", ("x.",), 60_000, {"client_id": "x"}),
    )

    def warned(*seen: str) -> list[str]:
        telemetry = client.telemetry
        return list(prefix_warnings(telemetry.subscriptions.asked, telemetry.instances, seen))

    client.get(0)
    assert warned() == []
    client.push(60, b"")
    assert warned("my.app.requests") == [
        "subscription typo: no known metric begins with 'producer.'; "
        "did you mean 'org.apache.kafka.producer.'?"
    ]
    assert warned("my.app.requests", "producer.own") == []
    assert [line.partition(":")[0] for line in warned()] == ["subscription own", "subscription typo"]


@pytest.mark.parametrize(
    ("ahead_s", "words"),
    [(None, None), (59.0, None), (-3700.0, "1 h 1 min behind this"), (61.0, "1 min 1 s ahead of this")],
)
def test_clocks(ahead_s: float | None, words: str | None) -> None:
    lines = list(clock_warnings(ahead_s))
    assert len(lines) == (words is not None)
    assert words is None or words in lines[0]


def test_one_client_with_a_wrong_clock_says_nothing() -> None:
    clocks = ClientClocks()
    received_ns = 10**18
    clocks.record(instance_id(2), received_ns + 3600 * 10**9, received_ns)
    clocks.record(instance_id(3), received_ns - 10**9, received_ns)
    too_few = clocks.ahead_s
    assert too_few is None
    clocks.record(instance_id(4), received_ns - 10**9, received_ns)
    known = clocks.ahead_s
    assert known == -1.0
    for number in range(5, 105):
        clocks.record(instance_id(number), received_ns + 120 * 10**9, received_ns)
    assert clocks.ahead_s == 120.0
    assert len(clocks._ahead_s) == 64


def test_clients_that_have_gone_and_half_of_the_clients_say_nothing() -> None:
    clocks = ClientClocks()
    received_ns = 10**18
    for number in range(2, 6):
        clocks.record(instance_id(number), received_ns, received_ns)
    for number in range(6, 11):
        clocks.record(instance_id(number), received_ns - 3600 * 10**9, received_ns)
    assert clocks.ahead_s == -3600.0
    clocks.forget(instance_id(10))
    assert clocks.ahead_s == 0.0
