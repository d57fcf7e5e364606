"""The producer without a broker: timeouts, a full queue, too large records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from plugins.kafka_topic import producer
from plugins.kafka_topic.config import KafkaTopicConfig
from plugins.kafka_topic.producer import TopicProducer
from receiver.plugin import RetryableError
from tests.testbed.ports import free_port
from tests.unit.host.support import push


@pytest.fixture
def unconnected() -> Iterator[TopicProducer]:
    """A producer that has found its topic and lost its broker."""
    made = new_producer()
    made._topic_seen = True
    yield made
    made.close()


def new_producer(**settings: Any) -> TopicProducer:
    bootstrap = f"127.0.0.1:{free_port()}"
    return TopicProducer(
        KafkaTopicConfig(bootstrap_servers=bootstrap, topic="t", **{"timeout_ms": 300, **settings})
    )


def codes(reports: list[KafkaError | None]) -> list[int | None]:
    return [None if report is None else report.code() for report in reports]


def test_an_unreachable_cluster_is_retryable_and_named() -> None:
    made = new_producer(security_protocol="SSL")
    try:
        assert made.problem == ""
        with pytest.raises(RetryableError, match=r"127\.0\.0\.1:\d+: .*refused"):
            made.send([push()])
    finally:
        made.close()


def test_unacknowledged_records_fail_at_the_timeout_and_leave_the_queue(unconnected: TopicProducer) -> None:
    reports = unconnected.send([push(n) for n in range(3)])
    assert codes(reports) == [KafkaError._PURGE_QUEUE] * 3
    assert unconnected.problem
    assert len(unconnected._producer) == 0


def test_pushes_beyond_the_queue_wait_until_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "_MAX_QUEUED_RECORDS", 1)
    made = new_producer()
    made._topic_seen = True
    try:
        assert codes(made.send([push(0), push(1)])) == [KafkaError._PURGE_QUEUE, KafkaError._TIMED_OUT]
    finally:
        made.close()


def test_a_record_over_the_bound_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "_MAX_RECORD_BYTES", 1_000)
    made = new_producer()
    made._topic_seen = True
    try:
        reports = made.send([push(0, size=2_000), push(1)])
    finally:
        made.close()
    assert codes(reports) == [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._PURGE_QUEUE]
