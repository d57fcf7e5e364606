"""Reads and writes CLIENT_METRICS resources and the compacted topic.

It is the only module that knows kafka-python. It imports the library when it connects, because the
other stores need none. Every error of the library becomes a :class:`StoreError`.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import json
import logging
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from receiver.settings.hostport import HostPorts
from receiver.settings.kafka_options import OPTIONS
from receiver.settings.subscriptions import KafkaStoreSettings
from receiver.store.kafka_format import RESOURCE_KEYS, Entry
from receiver.store.store import StoreError
from spark_streaming.files import FileError, read_secret

_TIMEOUT_MS: Final = 5000
_REACH_S: Final = 2.0
#: A topic with more is not ours.
_MAX_RECORDS: Final = 5000
_MAX_READ_BYTES: Final = 64 * 1024 * 1024
_MAX_REASON: Final = 300
#: Resources in one request.
_PAGE: Final = 1000

_JAAS: Final = re.compile(r'\b(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')')


#: Properties of brokers that name their metrics reporters.
_REPORTER_KEYS: Final = ("metric.reporters", "auto.include.jmx.reporter")


class RefusedError(StoreError):
    """The brokers refused the values of a resource."""


class Cluster:
    """Connections to a cluster. Its methods block, for seconds at most.

    Use it from one thread at a time. After an error it must be closed.

    Raises:
        StoreError: The brokers can't be reached, or an option's file can't be read.
    """

    def __init__(self, settings: KafkaStoreSettings) -> None:
        self._place = str(settings.bootstrap_servers)
        self._reach(settings.bootstrap_servers)
        self._topic = settings.topic
        self._arguments = client_arguments(settings)
        self._arguments["kafka_client"] = self._client
        self._clients: list[Any] = []
        self._consumer: Any = None
        self._position = 0
        self._records: dict[str, dict[str, Any]] = {}
        self._has_resources = True
        self._was_read = False
        try:
            with self._translated("cannot be connected to"), _listening() as said:
                from kafka.admin import KafkaAdminClient

                self._admin: Any = KafkaAdminClient(**self._arguments)
        except StoreError:
            self.close()
            # The library keeps sockets of failed logins in cycles of young objects.
            gc.collect(1)
            if not said:
                raise
            hint = ""
            if "SASL" in self._arguments.get("security_protocol", "") and "disconnected" in said[-1]:
                hint = ", perhaps because of the login"  # some brokers close without an answer
            raise StoreError(self._place, f"cannot be connected to: {said[-1]}{hint}") from None

    def _reach(self, servers: HostPorts) -> None:
        """Connect to a broker and leave again.

        The library forgets the sockets of connections that fail, and says only that it timed out.
        """
        reasons = []
        for server in servers:
            try:
                socket.create_connection((server.host, server.port), _REACH_S).close()
            except OSError as error:
                reasons.append(f"{server}: {error.strerror or error}")
            else:
                return
        raise StoreError(self._place, f"cannot be connected to: {_short('; '.join(dict.fromkeys(reasons)))}")

    @property
    def has_resources(self) -> bool:
        """Whether the brokers have CLIENT_METRICS (Kafka 3.7); known after a read."""
        return self._has_resources

    def read(self) -> dict[str, Entry]:
        """Read all subscriptions, and the records of deleted ones, by name.

        Raises:
            StoreError: The brokers don't answer, or don't allow it.
        """
        with self._translated("subscriptions cannot be read"):
            # In this order. A receiver that moves a complete record to a resource writes the
            # resource before the record is gone, so one of both is seen.
            self._read_records()
            resources = self._read_resources()
        self._was_read = True
        return {
            name: Entry(configs=resources.get(name), beside=self._records.get(name, {}))
            for name in resources.keys() | self._records.keys()
        }

    def prepare(self) -> None:
        """Read what a write depends on: what the brokers have, and the records.

        Errors as above.
        """
        if not self._was_read:
            self.read()
            return
        with self._translated("subscriptions cannot be read"):
            self._read_records()

    def check(self, name: str, configs: Mapping[str, str]) -> None:
        """Let the brokers check a resource without writing it.

        Raises:
            RefusedError: A value is wrong for them.
            StoreError: The brokers don't answer, or don't allow it.
        """
        self._alter(name, configs, validate_only=True)

    def write(self, name: str, entry: Entry) -> None:
        """Write a subscription.

        Its record is first, so that it never matches more than it should.

        Raises:
            StoreError: The brokers don't answer, or don't allow it.
        """
        if entry.beside:
            self._send(name, json.dumps(dict(entry.beside)).encode())
        if entry.configs is not None:
            self._alter(name, entry.configs)
        if not entry.beside and name in self._records:
            self._send(name, None)

    def delete(self, name: str) -> None:
        """Delete a subscription: first its resource. Errors as above."""
        if self._has_resources:
            self._alter(name, {})
        if name in self._records:
            self._send(name, None)

    def read_reporters(self) -> dict[int, dict[str, str]]:
        """Read which metrics reporters each broker has, by node id.

        Errors as of :meth:`read`.
        """
        from kafka.admin import ConfigResource, ConfigResourceType

        with self._translated("brokers' configurations cannot be read"):
            brokers = self._admin.describe_cluster()["brokers"]
            ids = [str(broker["broker_id"]) for broker in brokers]
            asked = [ConfigResource(ConfigResourceType.BROKER, name) for name in ids]
            found = self._admin.describe_configs(asked, config_filter="all").get("broker", {})
        return {
            int(name): {
                key: str(values[key]["value"])
                for key in _REPORTER_KEYS
                if key in values and values[key]["value"] is not None
            }
            for name, values in found.items()
        }

    def forget_record(self, name: str) -> None:
        """Delete the record of a subscription that has no resource any more.

        Errors as above.
        """
        self._send(name, None)

    def close(self) -> None:
        """Close the connections."""
        if self._consumer is not None:
            with contextlib.suppress(Exception):
                self._consumer.close()
        # The library leaves the thread and the sockets of a client that could not connect.
        for client in self._clients:
            with contextlib.suppress(Exception):
                client.close()

    def _client(self, **arguments: Any) -> Any:
        """Build a client's connections, in place of the library."""
        from kafka.net.compat import KafkaNetClient
        from kafka.net.manager import KafkaConnectionManager
        from kafka.net.selector import NetworkSelector

        net = NetworkSelector(**arguments)
        manager = KafkaConnectionManager(net, **arguments)
        client = KafkaNetClient(net=net, manager=manager, **arguments)
        self._clients.append(client)
        return client

    # -- resources ---------------------------------------------------------------------------------

    def _read_resources(self) -> dict[str, dict[str, str]]:
        from kafka.admin import ConfigResource, ConfigResourceType
        from kafka.errors import IncompatibleBrokerVersion

        kind = ConfigResourceType.CLIENT_METRICS
        try:
            names = self._admin.list_config_resources([kind]).get("client_metrics", [])
        except IncompatibleBrokerVersion:
            self._has_resources = False
            return {}
        self._has_resources = True
        found: dict[str, dict[str, str]] = {}
        for begin in range(0, len(names), _PAGE):
            page = [ConfigResource(kind, name) for name in names[begin : begin + _PAGE]]
            for name, values in self._admin.describe_configs(page).get("client_metrics", {}).items():
                configs = {
                    key: str(value["value"]) for key, value in values.items() if value["value"] is not None
                }
                if configs:  # otherwise it was deleted since it was listed
                    found[name] = configs
        return found

    def _alter(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType

        # An empty list of patterns is the absence of the key. Empty metrics are a value.
        values = {
            key: (AlterConfigOp.SET, configs[key])
            if key in configs and (configs[key] or key == "metrics")
            else (AlterConfigOp.DELETE, None)
            for key in RESOURCE_KEYS
        }
        resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, name, values)
        with self._translated("the subscription cannot be written"):
            answer = self._admin.alter_configs(
                [resource], validate_only=validate_only, raise_on_unknown=False, incremental=True
            )
        result = str(answer.get("client_metrics", {}).get(name, "no answer"))
        if result != "OK":
            code, _, reason = result.removeprefix("[Error ").partition("] ")
            problem = f"the brokers refuse the subscription: {_short(reason or result)}"
            # 40 INVALID_CONFIG, 42 INVALID_REQUEST
            raise (RefusedError if code in {"40", "42"} else StoreError)(self._place, problem)

    # -- records -----------------------------------------------------------------------------------

    def _read_records(self) -> None:
        """Read the topic up to its end."""
        from kafka import TopicPartition

        if self._consumer is None and not self._subscribe():
            return
        partition = TopicPartition(self._topic, 0)
        end = self._consumer.end_offsets([partition])[partition]
        if end < self._position:  # the topic was deleted and created again
            self._records.clear()
            self._consumer.seek_to_beginning(partition)
        total, idle = 0, 0
        while (position := self._consumer.position(partition)) < end:
            batch = self._consumer.poll(timeout_ms=500).get(partition, [])
            idle = 0 if batch or self._consumer.position(partition) > position else idle + 1
            total += sum(len(message.key or b"") + len(message.value or b"") for message in batch)
            for record in batch:
                self._apply(record.key, record.value)
            if total > _MAX_READ_BYTES or len(self._records) > _MAX_RECORDS:
                raise StoreError(
                    self._place,
                    f"the topic {self._topic} has too much for a topic of subscriptions: set "
                    "subscriptions.kafka.topic to one of its own",
                )
            if idle * 500 > _TIMEOUT_MS:
                raise StoreError(self._place, f"the topic {self._topic} cannot be read: no answer")
        self._position = end

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        name = (key or b"").decode("utf-8", "replace")
        if value is None:
            self._records.pop(name, None)
            return
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            document = None
        # A key that no subscription has makes the record unusable where it is read.
        self._records[name] = document if isinstance(document, dict) else {"not a record": None}

    def _subscribe(self) -> bool:
        """Return whether the topic exists; then read it from its beginning."""
        from kafka import KafkaConsumer, TopicPartition

        if not self._topic_exists():
            return False
        self._consumer = KafkaConsumer(
            **self._arguments, allow_auto_create_topics=False, enable_auto_commit=False, group_id=None
        )
        partition = TopicPartition(self._topic, 0)
        self._consumer.assign([partition])
        self._consumer.seek_to_beginning(partition)
        return True

    def _topic_exists(self) -> bool:
        (topic,) = self._admin.describe_topics([self._topic])
        error = topic.get("error_code", 0)
        if error == 29:  # TOPIC_AUTHORIZATION_FAILED
            raise StoreError(
                self._place, f"the topic {self._topic} may not be described: allow this user to describe it"
            )
        return bool(error == 0 and topic.get("partitions"))

    def _send(self, name: str, value: bytes | None) -> None:
        """Write a record, durably; create the topic first if it does not exist."""
        from kafka import KafkaProducer
        from kafka.errors import TopicAlreadyExistsError

        with self._translated(f"the topic {self._topic} cannot be written"):
            if not self._topic_exists():
                with contextlib.suppress(TopicAlreadyExistsError):
                    self._admin.create_topics(
                        {
                            self._topic: {
                                "num_partitions": 1,
                                "configs": {"cleanup.policy": "compact", "min.compaction.lag.ms": "0"},
                            }
                        },
                        timeout_ms=_TIMEOUT_MS,
                        wait_for_metadata=True,
                    )
            timeout_ms = self._arguments["request_timeout_ms"]
            kept = len(self._clients)
            producer = KafkaProducer(
                **self._arguments,
                acks="all",
                enable_idempotence=False,
                allow_auto_create_topics=False,
                max_block_ms=timeout_ms,
                delivery_timeout_ms=2 * timeout_ms,
            )
            try:
                sent = producer.send(self._topic, key=name.encode(), value=value, partition=0)
                sent.get(timeout=2 * timeout_ms / 1000)
            finally:
                producer.close(timeout=1)
                del self._clients[kept:]

    @contextlib.contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # the library raises what its sockets and codecs raise, too
            raise StoreError(self._place, f"{what}: {type(error).__name__}: {_short(str(error))}") from None


class _LastProblems(logging.Handler):
    """Keeps why connections failed, because the library only raises that time is over."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: collections.deque[str] = collections.deque(maxlen=1)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first reason, but a refused login rather than any other."""
        text = _short(record.getMessage())
        _, connection, reason = text.partition("Bootstrap connection to ")
        _, failed, reason = reason.partition(" failed: ")
        if connection and failed and (not self.said or "uthenticat" in reason):
            self.said.append(reason.partition(" (backoff")[0])


@contextlib.contextmanager
def _listening() -> Iterator[Sequence[str]]:
    # Never at DEBUG, where the library logs its configuration with passwords. And never in the
    # receiver's log, which has the store's own lines.
    log = logging.getLogger("kafka")
    log.setLevel(logging.WARNING)
    log.propagate = False
    handler = _LastProblems()
    log.handlers = [handler]
    try:
        yield handler.said
    finally:
        log.handlers = [logging.NullHandler()]


def client_arguments(settings: KafkaStoreSettings) -> dict[str, Any]:
    """Return the arguments of kafka-python's clients, with the content of files.

    Raises:
        StoreError: A file can't be read.
    """
    arguments: dict[str, Any] = {
        "bootstrap_servers": [str(address) for address in settings.bootstrap_servers],
        "bootstrap_timeout_ms": _TIMEOUT_MS,
        "request_timeout_ms": _TIMEOUT_MS,
        "reconnect_backoff_ms": 500,
        "reconnect_backoff_max_ms": 1000,
        "client_id": "kafka-client-telemetry",
    }
    for name, value in settings.options.items():
        target = OPTIONS[name]
        content = _content(name, value["file"]) if isinstance(value, dict) else value
        if target == "jaas":
            login = {key: text[1:-1] for key, text in _JAAS.findall(content)}
            if login.keys() != {"username", "password"}:
                raise StoreError(
                    f"subscriptions.kafka.options.{name}",
                    'expected \'... required username="..." password="...";\' of PLAIN or SCRAM',
                )
            arguments |= {f"sasl_plain_{key}": re.sub(r"\\(.)", r"\1", text) for key, text in login.items()}
        elif target == "ssl_check_hostname":
            arguments[target] = content == "https"
        elif target:
            arguments[target] = content
    return arguments


def _content(name: str, file: str) -> str:
    try:
        return read_secret(Path(file))
    except FileError as error:
        raise StoreError(f"subscriptions.kafka.options.{name}", f"the file {file} {error}") from None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_REASON else f"{line[:_MAX_REASON]}..."
