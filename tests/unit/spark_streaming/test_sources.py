"""A Kafka that can't be reached is named at once, and not after minutes."""

from __future__ import annotations

import socket

import pytest

from spark_streaming.load import load
from spark_streaming.settings import RollupSettings
from spark_streaming.sources import check_reachable


def of_kafka(*addresses: str) -> RollupSettings:
    return load(None, {"source": "kafka", "kafka": {"bootstrap_servers": ",".join(addresses), "topic": "t"}})


def test_one_of_kafkas_addresses_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there = f"127.0.0.1:{listening.getsockname()[1]}"
        check_reachable(of_kafka("127.0.0.1:1", there))
    check_reachable(load(None, {}))


def test_each_address_that_does_not_accept_is_named_with_the_reason() -> None:
    with pytest.raises(
        ConnectionError,
        match=r"kafka\.bootstrap_servers: none can be reached: 127\.0\.0\.1:1: .+refused; \[::1\]:1",
    ):
        check_reachable(of_kafka("127.0.0.1:1", "[::1]:1"))


def test_what_is_no_address_is_left_to_kafkas_client() -> None:
    check_reachable(of_kafka("broker"))
