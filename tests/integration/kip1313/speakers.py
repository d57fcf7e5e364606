"""Clients in raw frames: one that knows KIP-1313, and one that does not.

Bodies and answers are kio's, which is made from Kafka's own schemas: KIP-1313's version of an RPC
is laid out as the one before, but for OffsetDelete and the telemetry RPCs. Nothing here is the
receiver's own codec.
"""

from __future__ import annotations

import importlib
import io
import itertools
import struct
import uuid
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from tests.conformance.requests import compact_string
from tests.integration.gateway.support import Raw
from tests.testbed.scripted_broker import framed

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS = 11, 12, 13, 14, 15
SASL_HANDSHAKE, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = 17, 18, 19, 20, 22
ADD_PARTITIONS_TO_TXN, TXN_OFFSET_COMMIT, DESCRIBE_ACLS, DESCRIBE_CONFIGS = 24, 28, 29, 32
DESCRIBE_LOG_DIRS, SASL_AUTHENTICATE, DELETE_GROUPS, OFFSET_DELETE, DESCRIBE_CLUSTER = 35, 36, 42, 47, 60
GET, PUSH, STREAMS_GROUP_HEARTBEAT, STREAMS_GROUP_DESCRIBE = 71, 72, 88, 89
STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, UNREGISTER_CONTROLLER = 93, 94

CLIENT_ID: Final = "new-client"
#: Kafka 4.4 lets a client of KIP-1313 fall back only where its id begins with a zero byte.
MINE, ANOTHER, ZERO = uuid.UUID(int=7), uuid.UUID(int=8), uuid.UUID(int=0)
MINE_AS_TEXT: Final = "AAAAAAAAAAAAAAAAAAAABw"

#: The layout of an answer to ApiVersions from version 3 on, as far as kio has them.
_API_VERSIONS_LAYOUT: Final = 4

#: Versions used here that have request header 1 and response header 0.
_NOT_FLEXIBLE: Final = {(OFFSET_DELETE, 0), (SASL_HANDSHAKE, 1)}


class Speaker(Raw):
    """A client in raw frames; bodies and answers are without their headers.

    Args:
        port: Where it connects.
        client_id: Its client id.

    Attributes:
        client_id: As given; may be changed.
        offered: By API key the least and the greatest version that it was offered.
    """

    def __init__(self, port: int, *, client_id: str | None = CLIENT_ID) -> None:
        super().__init__(port)
        self.client_id = client_id
        self.offered: dict[int, tuple[int, int]] = {}
        self._correlation_ids = itertools.count(1)

    def layout(self, api_key: int) -> int:
        """Return the version whose body layout :meth:`ask` sends and returns."""
        return self.offered[api_key][1]

    def ask(self, api_key: int, body: bytes) -> bytes:
        """Ask in the greatest version that is offered.

        Raises:
            EOFError: The connection was closed.
        """
        return self.ask_version(api_key, self.offered[api_key][1], body)

    def ask_version(
        self, api_key: int, version: int, body: bytes, instance: uuid.UUID | None = None
    ) -> bytes:
        """Ask in a given version, with header v3 if ``instance`` is given.

        Raises:
            EOFError: The connection was closed.
        """
        correlation_id = next(self._correlation_ids)
        flexible = (api_key, version) not in _NOT_FLEXIBLE
        answer = self.exchange(
            framed(
                struct.pack(">hhi", api_key, version, correlation_id)
                + _string(self.client_id)
                + (b"" if instance is None else instance.bytes)
                + (b"\0" if flexible else b"")
                + body
            )
        )
        assert answer[:4] == struct.pack(">i", correlation_id)
        return answer[5 if flexible and api_key != API_VERSIONS else 4 :]

    def learn(self, answer: bytes) -> None:
        """Take over what an answer to ApiVersions v3 or later offers."""
        response = read(load_response_schema(API_VERSIONS, _API_VERSIONS_LAYOUT), answer)
        assert response.error_code is ErrorCode.none
        self.offered = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}


class OldClient(Speaker):
    """A client of Kafka 4.4."""

    def __init__(self, port: int, *, client_id: str | None = CLIENT_ID) -> None:
        super().__init__(port, client_id=client_id)
        self.learn(self.ask_version(API_VERSIONS, 5, software("old")))


class NewClient(Speaker):
    """A KIP-1313 client: begins with ApiVersions v6, and then sends a null client id.

    If the broker lacks v6, it continues like an older client.

    Args:
        port: Where it connects.
        instance: Its client instance id.

    Attributes:
        instance: As given.
        falls_back: Whether there was no v6.
    """

    def __init__(self, port: int, *, instance: uuid.UUID = MINE) -> None:
        super().__init__(port)
        self.instance = instance
        answer = self.ask_version(API_VERSIONS, 6, software("new"), instance)
        self.falls_back = struct.unpack_from(">h", answer)[0] == ErrorCode.unsupported_version.value
        self.learn(self.ask_version(API_VERSIONS, 5, software("new")) if self.falls_back else answer)
        if not self.falls_back:
            self.client_id = None

    def layout(self, api_key: int) -> int:
        """See the base; the version before KIP-1313's."""
        return super().layout(api_key) - 1

    def ask(self, api_key: int, body: bytes) -> bytes:
        """See the base; with its own id in header v3."""
        return self.ask_version(api_key, self.offered[api_key][1], body, self.instance)


def software(name: str) -> bytes:
    """The body of ApiVersions v5 and v6."""
    return compact_string(name) + compact_string("1.0") + b"\0" + struct.pack(">i", -1) + b"\0"


def in_kio(api_key: int, version: int) -> bool:
    """Whether kio has it."""
    return version in schema_name_map.get(api_key_map.get(api_key, ""), ())


def schema_type(api_key: int, version: int, name: str) -> Any:
    """A type that a request is made of."""
    return getattr(importlib.import_module(load_request_schema(api_key, version).__module__), name)


def write(value: Any) -> bytes:
    """Return the encoded value."""
    buffer = io.BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def read(kind: Any, data: bytes) -> Any:
    """Read it, to its end."""
    value, size = entity_reader(kind)(data, 0)
    assert size == len(data)
    return value


def _string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else struct.pack(">h", len(text)) + text.encode()
