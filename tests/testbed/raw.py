"""Owns the requests by which the testbed looks after a broker, as raw bytes over a plain socket.

Deliberately not the receiver's codec: the testbed is an outsider to what it tests. Only versions
whose encoding has no tagged fields are used, so a message is a handful of integers and strings.
"""

from __future__ import annotations

import base64
import socket
import struct
from collections.abc import Mapping

from tests.testbed.ports import LOOPBACK
from tests.testbed.process import wait_until

_CREATE_TOPICS = (19, 2)
_INCREMENTAL_ALTER_CONFIGS = (44, 0)
_ALTER_CLIENT_QUOTAS = (49, 0)
_METADATA = (3, 2)
_SASL_HANDSHAKE = (17, 1)
_SASL_AUTHENTICATE = (36, 0)
_CREATE_DELEGATION_TOKEN = (38, 1)
_DESCRIBE_DELEGATION_TOKEN = (41, 1)

_BROKER_RESOURCE = 4
_CLIENT_METRICS_RESOURCE = 16
_SET, _DELETE = 0, 1
_TOPIC_ALREADY_EXISTS = 36

_CORRELATION_ID = 1
_TIMEOUT_MS = 120_000


class BrokerAnswerError(Exception):
    """The broker refused a request of the testbed's; the message has its error code and text."""


def _string(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    data = text.encode()
    return struct.pack(">h", len(data)) + data


class _Answer:
    """Reads a response's body from its beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def _unpack(self, form: str, size: int) -> int:
        value = int(struct.unpack_from(form, self._data, self._offset)[0])
        self._offset += size
        return value

    def int16(self) -> int:
        return self._unpack(">h", 2)

    def int32(self) -> int:
        return self._unpack(">i", 4)

    def int64(self) -> int:
        return self._unpack(">q", 8)

    def data(self) -> bytes:
        length = self.int32()
        data = self._data[self._offset : self._offset + length]
        self._offset += length
        return data

    def holds(self, data: bytes) -> bool:
        return self._data.find(data, self._offset) >= 0

    def string(self) -> str | None:
        length = self.int16()
        if length < 0:
            return None
        text = self._data[self._offset : self._offset + length].decode()
        self._offset += length
        return text


def _connect(port: int, timeout_s: float) -> socket.socket:
    return socket.create_connection((LOOPBACK, port), timeout_s)


def _request(connection: socket.socket, api: tuple[int, int], body: bytes) -> _Answer:
    """Send one request and return the body of the answer.

    Raises:
        OSError: The connection failed, was closed or timed out.
    """
    header = struct.pack(">hhi", *api, _CORRELATION_ID) + _string("testbed")
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    with connection.makefile("rb") as stream:
        (length,) = struct.unpack(">i", _exactly(stream.read(4), 4))
        answer = _exactly(stream.read(length), length)
    (correlation_id,) = struct.unpack_from(">i", answer)
    if correlation_id != _CORRELATION_ID:
        raise ConnectionError(f"answer to correlation id {correlation_id}, not {_CORRELATION_ID}")
    return _Answer(answer[4:])


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise ConnectionError(f"the connection was closed {size - len(data)} bytes before the answer's end")
    return data


def cluster_id_when_ready(port: int) -> str | None:
    """Return the cluster id once Metadata lists the broker (it is unfenced), else None."""
    try:
        with _connect(port, 1.0) as connection:
            answer = _request(connection, _METADATA, struct.pack(">i", 0))
    except (OSError, struct.error):
        return None
    brokers = answer.int32()
    for _ in range(brokers):
        answer.int32()
        answer.string()
        answer.int32()
        answer.string()
    return answer.string() if brokers else None


def create_topic(port: int, name: str, *, partitions: int) -> None:
    """Create a topic with one replica; one that exists is left as it is.

    Raises:
        BrokerAnswerError: The broker refused.
        OSError: It could not be asked.
    """
    topic = _string(name) + struct.pack(">ihii", partitions, 1, 0, 0)
    body = struct.pack(">i", 1) + topic + struct.pack(">i?", _TIMEOUT_MS, False)
    with _connect(port, _TIMEOUT_MS / 1000) as connection:
        answer = _request(connection, _CREATE_TOPICS, body)
    answer.int32()  # throttle time
    answer.int32()  # one topic
    answer.string()
    code, message = answer.int16(), answer.string()
    if code not in {0, _TOPIC_ALREADY_EXISTS}:
        raise BrokerAnswerError(f"create topic {name!r}: error {code}: {message}")


def alter_client_metrics(port: int, name: str, settings: Mapping[str, str | None]) -> None:
    """Set keys of a client metrics subscription (KIP-714); None deletes a key.

    Raises:
        BrokerAnswerError: The broker refused.
        OSError: It could not be asked.
    """
    _alter(port, _CLIENT_METRICS_RESOURCE, name, settings)


def alter_broker(port: int, node_id: int, settings: Mapping[str, str | None]) -> None:
    """Set dynamic properties of a broker; None deletes one. Errors as above."""
    _alter(port, _BROKER_RESOURCE, str(node_id), settings)


def _alter(port: int, kind: int, name: str, settings: Mapping[str, str | None]) -> None:
    configs = b"".join(
        _string(key) + struct.pack(">b", _DELETE if value is None else _SET) + _string(value)
        for key, value in settings.items()
    )
    resource = struct.pack(">b", kind) + _string(name)
    body = struct.pack(">i", 1) + resource + struct.pack(">i", len(settings)) + configs + b"\0"
    with _connect(port, _TIMEOUT_MS / 1000) as connection:
        answer = _request(connection, _INCREMENTAL_ALTER_CONFIGS, body)
    answer.int32()  # throttle time
    answer.int32()  # one resource
    code, message = answer.int16(), answer.string()
    if code:
        raise BrokerAnswerError(f"resource {name!r} of type {kind}: error {code}: {message}")


def limit_client(port: int, client_id: str, rates: Mapping[str, float | None]) -> None:
    """Set quotas of a client id, such as ``producer_byte_rate``; None removes one.

    Raises:
        BrokerAnswerError: The broker refused.
        OSError: It could not be asked.
    """
    entity = struct.pack(">i", 1) + _string("client-id") + _string(client_id)
    changes = b"".join(
        _string(key) + struct.pack(">d?", rate or 0.0, rate is None) for key, rate in rates.items()
    )
    body = struct.pack(">i", 1) + entity + struct.pack(">i", len(rates)) + changes + b"\0"
    with _connect(port, _TIMEOUT_MS / 1000) as connection:
        answer = _request(connection, _ALTER_CLIENT_QUOTAS, body)
    answer.int32()  # throttle time
    answer.int32()  # one entity
    code, message = answer.int16(), answer.string()
    if code:
        raise BrokerAnswerError(f"quotas of the client id {client_id!r}: error {code}: {message}")


def create_delegation_token(port: int, user: str, password: str) -> tuple[str, str]:
    """Log in with PLAIN, create a delegation token (KIP-48), and wait until it works.

    Returns:
        The token's id and its HMAC in base64: a user and a password for SCRAM.

    Raises:
        BrokerAnswerError: The broker refused.
        OSError: It could not be asked.
        WaitTimeoutError: The broker does not know the token that its controller made.
    """
    with _connect(port, _TIMEOUT_MS / 1000) as connection:
        token = f"\0{user}\0{password}".encode()
        for api, body in (
            (_SASL_HANDSHAKE, _string("PLAIN")),
            (_SASL_AUTHENTICATE, struct.pack(">i", len(token)) + token),
        ):
            code = _request(connection, api, body).int16()
            if code:
                raise BrokerAnswerError(f"login of {user!r} over SASL: error {code}")
        no_renewers_and_the_longest_life = struct.pack(">iq", 0, -1)
        answer = _request(connection, _CREATE_DELEGATION_TOKEN, no_renewers_and_the_longest_life)
        code = answer.int16()
        if code:
            raise BrokerAnswerError(f"delegation token for {user!r}: error {code}")
        answer.string(), answer.string()  # the owner's type and name
        answer.int64(), answer.int64(), answer.int64()  # issued, expires, at the latest
        token_id, hmac = answer.string(), answer.data()

        def known() -> bool:
            described = _request(connection, _DESCRIBE_DELEGATION_TOKEN, struct.pack(">i", -1))
            return described.int16() == 0 and described.holds(_string(token_id))

        wait_until(known, timeout_s=_TIMEOUT_MS / 1000, what="the broker to know the delegation token")
    return str(token_id), base64.b64encode(hmac).decode()
