"""What goes wrong in the demo on purpose, and what the sidecar finds of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx

from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import Client, LibrdkafkaClient, Mode
from tests.testbed.process import wait_until
from tests.testbed.sidecar import Sidecar

#: A producer with a quota far below what it sends.
THROTTLED: Final = "orders-batch"
_QUOTA_BYTES_PER_S: Final = 4000.0
_RECORDS_PER_S: Final = 60.0

#: Seconds for which the member of the rebalancing group stays, and is away.
_STAYS_S: Final = 1.0
_STARTS_WITHIN_S: Final = 120.0


@contextmanager
def throttled_producer(broker: KafkaBroker, bootstrap: str, topic: str) -> Iterator[Client]:
    """Run a producer that the broker throttles."""
    broker.limit_client(THROTTLED, producer_byte_rate=_QUOTA_BYTES_PER_S)
    with LibrdkafkaClient(
        Mode.PRODUCER,
        bootstrap=bootstrap,
        topic=topic,
        client_id=THROTTLED,
        rate=_RECORDS_PER_S,
        properties={"linger.ms": "200"},
    ) as client:
        yield client
        # Otherwise it takes minutes to send what it has left.
        broker.limit_client(THROTTLED, producer_byte_rate=None)


@contextmanager
def restless_member(bootstrap: str, topic: str, group: str) -> Iterator[None]:
    """Let a consumer join and leave a group again and again, so that the group rebalances."""
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            with LibrdkafkaClient(
                Mode.CONSUMER, bootstrap=bootstrap, topic=topic, client_id="orders-restless", group=group
            ) as member:
                # Only then it stops cleanly.
                wait_until(
                    lambda: bool(member.status()) or not member.running,
                    timeout_s=_STARTS_WITHIN_S,
                    what="the restless member",
                )
                stop.wait(_STAYS_S)
            stop.wait(_STAYS_S)

    thread = threading.Thread(target=come_and_go, name="restless-member")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def signs_of(sidecar: Sidecar) -> list[dict[str, Any]] | None:
    """Return what the clients' latest pushes show; None if the sidecar does not answer."""
    try:
        answer = sidecar.http.get("/v1/signs").raise_for_status().json()
    except httpx.HTTPError:
        return None
    signs: list[dict[str, Any]] = answer["items"]
    return signs


def in_words(sign: dict[str, Any]) -> str:
    """Say who does what, how much, since when, and what to do."""
    metric = str(sign["metric"]).removeprefix("org.apache.kafka.")
    software = f"{sign['client_software_name']} {sign['client_software_version']}"
    return (
        f"{sign['kind'].replace('_', ' ')}: {sign['client_id']} ({software}, {sign['principal']}), since "
        f"{sign['since']}. {sign['meaning']} {metric} is {sign['value']:.4g} {sign['unit'] or ''}".rstrip()
        + f". {sign['advice']}"
    )
