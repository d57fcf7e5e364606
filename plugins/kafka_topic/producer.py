"""One idempotent producer (librdkafka's), from its making to the end of its threads.

Owns the topic's being there, the confirmation of each record, and what librdkafka says of its troubles. A
producer whose records were not all confirmed in time is closed and never used again: then no old record can
land later, TLS files are read anew, and a fatal error of idempotence is over.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from plugins.kafka_topic.config import KafkaTopicConfig
from plugins.kafka_topic.record import headers, key
from receiver.plugin import Push, RetryableError

__all__ = ["TopicProducer"]

#: How much librdkafka holds at most; the push that fills it waits.
_MAX_QUEUED_KILOBYTES = 65_536
_MAX_QUEUED_RECORDS = 100_000
#: Larger than any push; the topic's own limit is the cluster's to tell.
_MAX_RECORD_BYTES = 33_554_432
#: What no time will heal without somebody's doing: there is no use in waiting for the deadline.
_HOPELESS = frozenset({KafkaError._AUTHENTICATION, KafkaError._FATAL})  # noqa: SLF001 # librdkafka's own names
#: Says that all is lost, not why.
_NO_REASON = frozenset({KafkaError._ALL_BROKERS_DOWN})  # noqa: SLF001
#: How often an idle producer's errors are taken from it, which would pile up; in seconds.
_IDLE_POLL_S = 1.0
_STEP_S = 0.2


class _Silent:
    """Takes librdkafka's log lines, of which the fatal ones would go to stderr at any level."""

    def log(self, *_: object) -> None:
        """Say nothing: what matters of it comes as errors."""


class TopicProducer:
    """Produces to one topic; used on one thread.

    Args:
        config: The plugin's settings.

    Raises:
        OSError: librdkafka refuses the settings: a TLS file is missing or wrong.
    """

    def __init__(self, config: KafkaTopicConfig) -> None:
        self._config = config
        self._problem: KafkaError | None = None
        self._topic_seen = False
        # Held by whoever has librdkafka call back.
        self._lock = threading.Lock()
        self._closing = threading.Event()
        try:
            self._producer = Producer(
                {
                    **config.client_properties(),
                    "enable.idempotence": True,  # with acks=all
                    "compression.type": config.compression,
                    # As the Java client has it: a key's partition is the same, whoever produces.
                    "partitioner": "murmur2_random",
                    "queue.buffering.max.kbytes": _MAX_QUEUED_KILOBYTES,
                    "queue.buffering.max.messages": _MAX_QUEUED_RECORDS,
                    "message.max.bytes": _MAX_RECORD_BYTES,
                    # The export's own deadline decides.
                    "message.timeout.ms": 0,
                    "error_cb": self._failed,
                },
                logger=_Silent(),
            )
        except KafkaException as error:
            raise OSError(_cause(error).str()) from None
        self._idle = threading.Thread(target=self._poll_idle, name="kafka-topic-idle", daemon=True)
        self._idle.start()

    def send(self, pushes: Sequence[Push]) -> list[KafkaError | None]:
        """Produce pushes and wait until the cluster has confirmed them, or the time is over.

        Returns:
            For each push None, or why it isn't confirmed.

        Raises:
            RetryableError: The cluster cannot be reached, or the topic isn't there; nothing was produced.
        """
        deadline = time.monotonic() + self._config.timeout_ms / 1000
        with self._lock:
            self._problem = None
            self._find_topic(deadline)
            reports: list[KafkaError | None] = [KafkaError(KafkaError._TIMED_OUT)] * len(pushes)  # noqa: SLF001
            for number, push in enumerate(pushes):
                self._produce(push, functools.partial(_report, reports, number), deadline)
            try:
                self._flush(deadline)
            except KafkaException as error:  # a fatal one
                self._problem = _cause(error)
        return reports

    @property
    def problem(self) -> str:
        """What librdkafka said last of its troubles; empty: nothing."""
        if self._problem is None:
            return ""
        if self._problem.code() in _NO_REASON:
            protocol = self._config.security_protocol
            return f"{self._problem.str()}, or speak no {protocol} there: see security_protocol"
        return self._problem.str()

    def close(self) -> None:
        """Forget what isn't confirmed, and end librdkafka's threads."""
        self._closing.set()
        self._idle.join()
        # After a fatal error both raise it once more, and end all the same.
        with contextlib.suppress(KafkaException):
            self._producer.purge()
        with contextlib.suppress(KafkaException):
            self._producer.close()

    def _flush(self, deadline: float) -> None:
        while self._producer.flush(_step(deadline)):
            if self._hopeless or time.monotonic() >= deadline:
                if self._problem is None:
                    self._problem = KafkaError(KafkaError._TIMED_OUT, "timeout_ms is over")  # noqa: SLF001
                # What isn't confirmed now fails, and its report comes at once.
                self._producer.purge()
                self._producer.flush(_STEP_S)
                return

    def _produce(self, push: Push, report: functools.partial[None], deadline: float) -> None:
        while True:
            try:
                self._producer.produce(
                    self._config.topic,
                    push.payload.data,
                    key(push),
                    headers=headers(push),
                    timestamp=push.context.received_at_ns // 1_000_000,
                    on_delivery=report,
                )
            except BufferError:
                if time.monotonic() >= deadline or self._hopeless:
                    return
                self._producer.poll(_step(deadline))
            except KafkaException as error:
                report(_cause(error))
                return
            else:
                return

    def _find_topic(self, deadline: float) -> None:
        """Without this, a missing topic or right would only be a time-out."""
        if self._topic_seen:
            return
        topic, made = self._config.topic, False
        while True:
            error = self._topic_error(deadline)
            if error is None:
                self._topic_seen = True
                return
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and not made:
                self._create_topic(deadline)
                made = True
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise RetryableError(f"topic {topic}: {error.str()}: DESCRIBE and WRITE are needed")
            elif self._hopeless or time.monotonic() >= deadline:
                raise RetryableError(f"{self._config.bootstrap_servers}: {self.problem or error.str()}")
            # A topic that has just been made isn't known to every broker at once.
            self._producer.poll(_step(deadline))

    def _topic_error(self, deadline: float) -> KafkaError | None:
        try:
            found = self._producer.list_topics(self._config.topic, timeout=_step(deadline, 1.0))
        except KafkaException as error:
            self._producer.poll(0)
            return _cause(error)
        unavailable: KafkaError | None = found.topics[self._config.topic].error
        return unavailable

    def _create_topic(self, deadline: float) -> None:
        topic, create = self._config.topic, self._config.create_topic
        if create is None:
            raise RetryableError(f"topic {topic} isn't there: make it, or set create_topic")
        settings = (
            {}
            if create.retention_hours is None
            else {"retention.ms": str(create.retention_hours * 3_600_000)}
        )
        left_s = max(1.0, deadline - time.monotonic())
        admin = AdminClient(self._config.client_properties())
        made = admin.create_topics(
            [
                NewTopic(
                    topic,
                    num_partitions=create.partitions or -1,
                    replication_factor=create.replication_factor or -1,
                    config=settings,
                )
            ],
            request_timeout=left_s,
        )
        try:
            # Not raised: its traceback would be a cycle, and the client's threads wait for the collector.
            error = made[topic].exception(left_s + 1)
        except TimeoutError:
            raise RetryableError(f"topic {topic} isn't there and was not made in time") from None
        if error is not None and _cause(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise RetryableError(f"topic {topic} isn't there and cannot be made: {_cause(error).str()}")

    @property
    def _hopeless(self) -> bool:
        return self._problem is not None and (self._problem.code() in _HOPELESS or self._problem.fatal())

    def _failed(self, error: KafkaError) -> None:
        if error.code() not in _NO_REASON or self._problem is None:
            self._problem = error

    def _poll_idle(self) -> None:
        while not self._closing.wait(_IDLE_POLL_S):
            # Else an export is under way, which polls.
            if self._lock.acquire(blocking=False):
                try:
                    self._producer.poll(0)
                finally:
                    self._lock.release()


def _cause(error: BaseException) -> KafkaError:
    cause: KafkaError = error.args[0]
    return cause


def _report(
    reports: list[KafkaError | None], number: int, error: KafkaError | None, message: Message | None = None
) -> None:
    reports[number] = error


def _step(deadline: float, longest_s: float = _STEP_S) -> float:
    return min(longest_s, max(0.0, deadline - time.monotonic()))
