"""Idempotent producer for one topic, on librdkafka.

It finds or creates the topic and waits for the acknowledgement of each record. The caller closes a
producer whose records were not all acknowledged in time, and creates a new one. So no old record
can arrive later, TLS files are read again, and a fatal idempotence error ends.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from plugins.kafka_topic.config import CreateTopic, KafkaTopicConfig
from plugins.kafka_topic.record import headers, key
from receiver.plugin import Push, RetryableError
from spark_streaming.threads import start_thread

#: Bounds on librdkafka's queue. A push that finds it full waits.
_MAX_QUEUED_KILOBYTES = 65_536
_MAX_QUEUED_RECORDS = 100_000
#: Larger than any push. The cluster enforces the topic's own limit.
_MAX_RECORD_BYTES = 33_554_432
#: Errors that need an operator, so that waiting for the deadline is useless.
_NOT_RETRYABLE = frozenset({KafkaError._AUTHENTICATION, KafkaError._FATAL})  # noqa: SLF001 # librdkafka's own names
#: Errors that do not tell the cause.
_NO_REASON = frozenset({KafkaError._ALL_BROKERS_DOWN})  # noqa: SLF001
#: Seconds between polls of an idle producer, because its errors would pile up.
_IDLE_POLL_S = 1.0
#: Seconds between attempts of an idle producer to find or create the topic, and for each.
_PREPARE_EVERY_S = 10.0
_PREPARE_S = 2.0
_STEP_S = 0.2
#: Discards librdkafka's log lines, because its errors arrive by callback. Without a logger, fatal
#: ones go to stderr at any level.
_SILENT = logging.Logger("kafka-topic", logging.CRITICAL + 1)


class _NoTopicError(RetryableError):
    """The topic does not exist."""


class TopicProducer:
    """Produces to one topic. Not thread-safe.

    Raises:
        OSError: librdkafka refuses the settings: a TLS file is missing or invalid.
    """

    def __init__(self, config: KafkaTopicConfig) -> None:
        self._config = config
        self._problem: KafkaError | None = None
        self._topic_seen = False
        self._prepares = False
        # Held while librdkafka may call back.
        self._lock = threading.Lock()
        self._closing = threading.Event()
        try:
            self._producer = Producer(
                {
                    **config.client_properties(),
                    "enable.idempotence": True,  # with acks=all
                    "compression.type": config.compression,
                    # The Java client's partitioner, so that a key has the same partition for all
                    # producers.
                    "partitioner": "murmur2_random",
                    "queue.buffering.max.kbytes": _MAX_QUEUED_KILOBYTES,
                    "queue.buffering.max.messages": _MAX_QUEUED_RECORDS,
                    "message.max.bytes": _MAX_RECORD_BYTES,
                    # The export's own deadline applies.
                    "message.timeout.ms": 0,
                    "error_cb": self._failed,
                },
                logger=_SILENT,
            )
        except KafkaException as error:
            raise OSError(_cause(error).str()) from None
        self._idle = start_thread("kafka-topic-idle", self._poll_idle)

    def prepare(self) -> None:
        """Find or create the topic in the background, for readers that come early."""
        self._prepares = self._config.create_topic is not None

    def send(self, pushes: Sequence[Push]) -> list[KafkaError | None]:
        """Produce pushes; return for each None, or why it is not acknowledged in time.

        Raises:
            RetryableError: The cluster is unreachable or the topic is missing. Nothing was
                produced.
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

    def find_topic(self, timeout_s: float) -> bool:
        """Tell whether the topic exists; it is not created here.

        Raises:
            RetryableError: The cluster is unreachable, or the topic is missing and ``create_topic``
                is null.
        """
        deadline = time.monotonic() + timeout_s
        with self._lock:
            try:
                self._find_topic(deadline, create=False)
            except _NoTopicError:
                if self._config.create_topic is None:
                    raise
                return False
        return True

    @property
    def problem(self) -> str:
        """The last error of librdkafka; empty if there is none."""
        if self._problem is None:
            return ""
        if self._problem.code() in _NO_REASON:
            protocol = self._config.security_protocol
            return f"{self._problem.str()}, or speak no {protocol} there: see security_protocol"
        return self._problem.str()

    def close(self) -> None:
        """Drop unacknowledged records and end librdkafka's threads."""
        self._closing.set()
        self._idle.join()
        # After a fatal error both calls raise it again, but succeed.
        with contextlib.suppress(KafkaException):
            self._producer.purge()
        with contextlib.suppress(KafkaException):
            self._producer.close()

    def _flush(self, deadline: float) -> None:
        while self._producer.flush(_step(deadline)):
            if self._failed_for_good or time.monotonic() >= deadline:
                if self._problem is None:
                    self._problem = KafkaError(KafkaError._TIMED_OUT, "timeout_ms is over")  # noqa: SLF001
                # Unacknowledged records fail now, and their reports arrive at once.
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
                if time.monotonic() >= deadline or self._failed_for_good:
                    return
                self._poll(_step(deadline))
            except KafkaException as error:
                report(_cause(error))
                return
            else:
                return

    def _find_topic(self, deadline: float, *, create: bool = True) -> None:
        """Check the topic, because produce reports a missing one only as a timeout.

        Raises:
            _NoTopicError: It is missing, and is not to be created.
            RetryableError: The cluster is unreachable, or refuses.
        """
        if self._topic_seen:
            return
        topic, created = self._config.topic, False
        while True:
            error = self._topic_error(deadline)
            if error is None:
                self._topic_seen = True
                return
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and not created:
                if not create or self._config.create_topic is None:
                    raise _NoTopicError(f"topic {topic} does not exist: create it, or set create_topic")
                self._create_topic(deadline, self._config.create_topic)
                created = True
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise RetryableError(f"topic {topic}: {error.str()}: DESCRIBE and WRITE are needed")
            elif self._failed_for_good or time.monotonic() >= deadline:
                raise RetryableError(f"{self._config.bootstrap_servers}: {self.problem or error.str()}")
            # Not every broker knows a new topic at once.
            self._poll(_step(deadline))

    def _topic_error(self, deadline: float) -> KafkaError | None:
        try:
            found = self._producer.list_topics(self._config.topic, timeout=_step(deadline, 1.0))
        except KafkaException as error:
            self._poll(0)
            return _cause(error)
        unavailable: KafkaError | None = found.topics[self._config.topic].error
        return unavailable

    def _create_topic(self, deadline: float, create: CreateTopic) -> None:
        topic = self._config.topic
        hours = create.retention_hours
        new = NewTopic(
            topic,
            num_partitions=create.partitions or -1,
            replication_factor=create.replication_factor or -1,
            config={} if hours is None else {"retention.ms": str(hours * 3_600_000)},
        )
        remaining_s = max(1.0, deadline - time.monotonic())
        admin = AdminClient(self._config.client_properties())
        futures = admin.create_topics([new], request_timeout=remaining_s)
        try:
            # Not raised: its traceback would be a reference cycle that keeps the client's threads
            # alive.
            error = futures[topic].exception(remaining_s + 1)
        except TimeoutError:
            raise RetryableError(f"topic {topic} does not exist and was not created in time") from None
        if error is not None and _cause(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise RetryableError(f"topic {topic} does not exist and cannot be created: {_cause(error).str()}")

    @property
    def _failed_for_good(self) -> bool:
        return self._problem is not None and (self._problem.code() in _NOT_RETRYABLE or self._problem.fatal())

    def _failed(self, error: KafkaError) -> None:
        if error.code() not in _NO_REASON or self._problem is None:
            self._problem = error

    def _poll(self, timeout_s: float) -> None:
        """Serve librdkafka's callbacks; a fatal error becomes the problem."""
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            self._failed(_cause(error))

    def _poll_idle(self) -> None:
        prepare_at = 0.0
        while not self._closing.wait(_IDLE_POLL_S):
            # If the lock is held, an export is running, and it polls and finds the topic.
            if not self._lock.acquire(blocking=False):
                continue
            try:
                self._poll(0)
                if self._prepares and not self._topic_seen and time.monotonic() >= prepare_at:
                    # An export reports what is wrong.
                    with contextlib.suppress(RetryableError):
                        self._find_topic(time.monotonic() + _PREPARE_S)
                    prepare_at = time.monotonic() + _PREPARE_EVERY_S
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
