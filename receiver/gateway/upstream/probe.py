"""Probes a broker for its API versions and, as far as it may, for who it is.

Owns short connections, one at a time. By the probe the receiver knows that the broker is up before
the first client connects, and that it is back after an outage.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from struct import Struct
from typing import Final, TypeVar

from receiver.brokers.listener_broker import ListenerBroker
from receiver.brokers.upstream import Upstream
from receiver.gateway.upstream.address import WANTS_CERTIFICATE, UpstreamAddress, describe_error
from receiver.gateway.upstream.broker_login import BrokerLoginError, log_in
from receiver.gateway.upstream.node_id import CLIENT_ID, ask_api_versions, ask_describe_configs
from receiver.gateway.waiting import readable, writable
from receiver.settings.broker import BrokerLoginSettings
from receiver.wire import api_keys, k03_metadata, k18_api_versions, k74_list_config_resources
from receiver.wire.error_codes import ErrorCode, error_name
from receiver.wire.errors import WireError
from receiver.wire.frame_rewriter import LENGTH_BYTES, frame
from receiver.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    response_header_version,
)
from receiver.wire.k03_metadata import Cluster
from receiver.wire.primitives import Reader

_Answer = TypeVar("_Answer")

_MAX_ANSWER_BYTES: Final = 4_194_304
_LENGTH = Struct(">i")

_CLOSED: Final = "the broker closed the connection without a response"
_SPEAKS_TLS: Final = "; if that listener speaks TLS, set listeners[].upstream_tls"

#: The first bytes of a TLS alert, with which a TLS listener answers plaintext.
_TLS_ALERT: Final = b"\x15\x03"


class ProbeError(Exception):
    """The broker can't be reached, or is no Kafka broker."""

    def __init__(self, problem: str, *, connected: bool = True) -> None:
        super().__init__(problem)
        self.connected = connected


class _NoResponseError(ProbeError):
    """The broker did not answer in time."""


async def probe(
    address: UpstreamAddress,
    upstream: Upstream,
    known: ListenerBroker,
    *,
    needs_login: bool,
    login: BrokerLoginSettings | None,
    timeout_s: float,
) -> Cluster | None:
    """Ask the broker at ``address`` once for its cluster; None if it was not asked.

    It sets the version ranges of ``upstream``. Where no login is needed, and where one is
    configured, it completes ``known``; a listener with SASL answers nothing but ApiVersions before
    the login.

    Raises:
        ProbeError: There was no usable response.
        BrokerLoginError: The broker answers, but not to this login.
    """
    answered = False

    async def ask(broker: socket.socket) -> Cluster | None:
        nonlocal answered
        await _ask_versions(broker, upstream)
        answered = True
        if needs_login and login is not None:
            await _log_in(broker, upstream, login)
        cluster = None
        unread_resources = 0
        if login is not None or not needs_login:
            cluster = await _ask_identity(broker, upstream, known)
            unread_resources = await _ask_resources(broker, upstream)
        known.record_telemetry(
            takes_telemetry=api_keys.GET_TELEMETRY_SUBSCRIPTIONS in upstream.ranges,
            unread_resources=unread_resources,
            keeps_resources=upstream.keeps_resources,
        )
        return cluster

    try:
        return await _asked(address, ask, timeout_s)
    except _NoResponseError as error:
        if answered and needs_login:
            raise BrokerLoginError(str(error)) from None
        raise


async def check_alive(address: UpstreamAddress, upstream: Upstream, *, timeout_s: float) -> None:
    """Ask the broker at ``address`` for its API versions only, which needs no login.

    A broker that hangs still accepts connections: the system does that for it.

    Raises:
        ProbeError: There was no usable response.
    """
    await _asked(address, lambda broker: _ask_versions(broker, upstream), timeout_s)


async def _asked(
    address: UpstreamAddress, ask: Callable[[socket.socket], Awaitable[_Answer]], timeout_s: float
) -> _Answer:
    """Connect, and return what ``ask`` learns of the broker.

    Raise ProbeError if it can't.
    """
    connected = False
    try:
        async with asyncio.timeout(timeout_s):
            broker = await address.connect()
            connected = True
            try:
                return await ask(broker)
            except (EOFError, ConnectionResetError) as error:
                problem = describe_error(error) if isinstance(error, OSError) else _CLOSED
                raise ProbeError(problem + (WANTS_CERTIFICATE if address.tls else _SPEAKS_TLS)) from None
            finally:
                broker.close()
    except TimeoutError:
        raise _NoResponseError(f"no response within {timeout_s:g} s", connected=connected) from None
    except OSError as error:
        raise ProbeError(describe_error(error), connected=connected) from None
    except WireError as error:
        raise ProbeError(f"the response is not Kafka's: {error}") from None


async def _ask_versions(broker: socket.socket, upstream: Upstream) -> None:
    answer = await _answer(broker, api_keys.API_VERSIONS, 0, b"")
    error_code = k18_api_versions.read_error_code(answer)
    if error_code != ErrorCode.NONE:
        raise ProbeError(f"the broker answered ApiVersions with {error_name(error_code)}")
    upstream.learn(k18_api_versions.read_ranges(answer, 0, upstream.learned_keys))


async def _log_in(broker: socket.socket, upstream: Upstream, login: BrokerLoginSettings) -> None:
    # What goes wrong here concerns the sidecar's login, not the clients': the broker does answer.
    try:
        await log_in(partial(_answer, broker), upstream, login)
    except (EOFError, ConnectionResetError):
        raise BrokerLoginError("the broker closed the connection during the login") from None
    except WireError as error:
        raise BrokerLoginError(f"the response to the login is not Kafka's: {error}") from None


async def _ask_identity(broker: socket.socket, upstream: Upstream, known: ListenerBroker) -> Cluster:
    ask = partial(_answer, broker)
    version = upstream.metadata_version()
    answer = await ask(api_keys.METADATA, version, k03_metadata.encode_no_topics_request(version))
    cluster = k03_metadata.decode_cluster(Reader(answer), version)
    known.record_cluster(cluster)
    candidates = known.candidates()
    node_id = await ask_api_versions(ask, upstream, cluster.id, candidates)
    if node_id is None:
        node_id = await ask_describe_configs(ask, upstream, candidates)
    known.record_node_id(node_id)
    return cluster


async def _ask_resources(broker: socket.socket, upstream: Upstream) -> int:
    """Return the number of client metrics resources that the receiver does not read."""
    if not upstream.hides_resources:
        return 0
    version = k74_list_config_resources.LIST_ONLY
    answer = await _answer(broker, api_keys.LIST_CONFIG_RESOURCES, version, b"\0")
    # Without the right, the broker answers an error and no names.
    _, names = k74_list_config_resources.decode_response(answer)
    return len(names)


async def _answer(broker: socket.socket, api_key: int, version: int, body: bytes) -> bytes:
    """Send a request; return the body of its response."""
    header = RequestHeader(api_key=api_key, api_version=version, correlation_id=0, client_id=CLIENT_ID)
    await _send(broker, frame(encode_request_header(header), body))
    start = await _receive(broker, LENGTH_BYTES)
    if start.startswith(_TLS_ALERT):
        raise ProbeError("that listener speaks TLS: set listeners[].upstream_tls")
    (length,) = _LENGTH.unpack(start)
    if not 0 <= length <= _MAX_ANSWER_BYTES:
        raise WireError(
            expected=f"a response of at most {_MAX_ANSWER_BYTES} bytes", offset=0, found=str(length)
        )
    response = await _receive(broker, length)
    reader = Reader(response)
    decode_response_header(reader, response_header_version(api_key, version))
    return response[reader.offset :]


async def _send(broker: socket.socket, data: bytes) -> None:
    while data:
        try:
            data = data[broker.send(data) :]
        except BlockingIOError:
            await writable(broker)


async def _receive(broker: socket.socket, count: int) -> bytes:
    data = bytearray(count)
    received = 0
    while received < count:
        try:
            read = broker.recv_into(memoryview(data)[received:])
        except BlockingIOError:
            await readable(broker)
            continue
        if not read:
            raise EOFError
        received += read
    return bytes(data)
