"""Runs several real Apache Kafka brokers as one cluster on loopback."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Self

from tests.testbed.broker import KafkaBroker

#: Every broker has a replica of everything, so that any of them may be killed.
_REPLICATED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "default.replication.factor": "3",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "share.coordinator.state.topic.replication.factor": "3",
        # Leaders move only when a test says so.
        "auto.leader.rebalance.enable": "false",
    }
)


class KafkaCluster:
    """Three brokers that run until the context ends.

    The first is also the controller, so it must not be killed. Their CLIENT listeners advertise
    themselves.

    Attributes:
        brokers: The brokers by node id.
    """

    def __init__(self) -> None:
        self._running = contextlib.ExitStack()
        self.brokers: dict[int, KafkaBroker] = {}

    def __enter__(self) -> Self:
        try:
            for node_id in (1, 2, 3):
                self.add(node_id)
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def bootstrap(self) -> str:
        """The CLIENT listeners of all brokers, with commas between them."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def add(self, node_id: int) -> KafkaBroker:
        """Start one more broker.

        Raises:
            StartError: It did not come up.
        """
        controller = next(iter(self.brokers.values()), None)
        broker = KafkaBroker(node_id=node_id, controller=controller, properties=_REPLICATED)
        self.brokers[node_id] = self._running.enter_context(broker)
        return broker
