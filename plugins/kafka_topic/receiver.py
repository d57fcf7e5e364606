"""The kafka_topic plugin: sends a batch and retries unacknowledged records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from plugins._shared.answers import REFUSED_KAFKA_ERRORS
from plugins.kafka_topic.config import KafkaTopicConfig
from receiver.plugin import (
    BatchRefusedError,
    ClientTelemetryReceiver,
    PluginConfig,
    Push,
    PushIdentity,
    RetryableError,
)

if TYPE_CHECKING:
    from plugins.kafka_topic.producer import TopicProducer

#: Bound on remembered pushes that were acknowledged while others of their export were not.
_MAX_CONFIRMED = 100_000


class KafkaTopicReceiver(ClientTelemetryReceiver):
    """Writes each push as a record to a Kafka topic."""

    Config: ClassVar[type[KafkaTopicConfig]] = KafkaTopicConfig
    max_batch_items = 10_000
    config: KafkaTopicConfig

    def __init__(self, config: KafkaTopicConfig) -> None:
        super().__init__(config)
        try:
            from plugins.kafka_topic.producer import TopicProducer
        except ModuleNotFoundError as error:
            raise RuntimeError(
                f"{error.name or error} is missing: pip install 'kafka-client-telemetry[kafka-topic]'"
            ) from None
        self._new_producer = TopicProducer
        self._producer: TopicProducer | None = None
        # In the order of acknowledgement.
        self._confirmed: dict[PushIdentity, None] = {}

    def start(self) -> None:
        """Create the producer and let it find or create the topic, without waiting."""
        self._producer = self._new_producer(self.config)
        self._producer.prepare()

    def use_config(self, config: PluginConfig) -> None:
        """Go on with a new producer, which has the changed password and certificates."""
        assert isinstance(config, KafkaTopicConfig)  # noqa: S101 - the host checked it as Config
        producer = self._new_producer(config)
        self.stop()
        self.config, self._producer = config, producer

    def export_batch(self, pushes: Sequence[Push]) -> None:
        """Write pushes and wait until every in-sync replica has them (acks=all).

        A retry leaves out acknowledged pushes.

        Raises:
            RetryableError: The cluster is unavailable, refuses the login or access, or lacks the
                topic.
            BatchRefusedError: A record is too large, or its timestamp is out of the topic's bounds.
        """
        remaining = [push for push in pushes if push.identity not in self._confirmed]
        if remaining:
            self._send(remaining)
        for push in pushes:
            self._confirmed.pop(push.identity, None)

    def check_destination(self, timeout_s: float) -> str:
        """Ask the cluster for the topic, which is not created.

        Raises:
            RetryableError: The cluster can't be reached or refuses the login, or the topic is
                missing.
        """
        try:
            producer = self._new_producer(self.config)
        except OSError as refused:
            raise RetryableError(f"cannot create a producer: {refused}") from None
        try:
            exists = producer.find_topic(timeout_s)
        finally:
            producer.close()
        state = "exists" if exists else "will be created with the first push"
        return f"{self.config.bootstrap_servers}: topic {self.config.topic} {state}"

    def stop(self) -> None:
        """End the producer's threads."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _send(self, pushes: Sequence[Push]) -> None:
        try:
            if self._producer is None:
                self._producer = self._new_producer(self.config)
            reports = self._producer.send(pushes)
        except OSError as refused:
            raise RetryableError(f"cannot create a producer: {refused}") from None
        except BaseException:
            # No record may arrive later.
            self.stop()
            raise
        for push, error in zip(pushes, reports, strict=True):
            if error is None:
                self._confirmed[push.identity] = None
        while len(self._confirmed) > _MAX_CONFIRMED:
            del self._confirmed[next(iter(self._confirmed))]
        errors = [error for error in reports if error is not None]
        if unconfirmed := [error for error in errors if error.code() not in REFUSED_KAFKA_ERRORS]:
            # librdkafka's own errors (negative codes) only say that the timeout ended.
            reason = next((error.str() for error in unconfirmed if error.code() > 0), self._producer.problem)
            self.stop()
            raise RetryableError(
                f"{len(unconfirmed)} of {len(pushes)} records not confirmed by the cluster: "
                f"{reason or unconfirmed[0].str()}"
            )
        if errors:
            raise BatchRefusedError(f"{len(errors)} of {len(pushes)} records refused: {errors[0].str()}")
