"""A scripted telemetry client, which asks a broker one thing at a time.

It speaks to anything that offers telemetry: the receiver, a Kafka broker with a plugin, the test
kit. It decides nothing; :mod:`receiver.testkit.broker_checks` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from receiver.brokers.upstream import Upstream
from receiver.gateway.upstream.broker_login import log_in_as
from receiver.settings.hostport import HostPort
from receiver.testkit.kit import MAX_FRAME_BYTES, Credentials
from receiver.testkit.recording import Subscription
from receiver.wire import api_keys, k18_api_versions, k71_get_telemetry_subscriptions, k72_push_telemetry
from receiver.wire.errors import WireError
from receiver.wire.headers import RequestHeader, at_body, encode_request_header
from receiver.wire.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.primitives import Reader
from receiver.wire.uuid import ZERO_UUID, Uuid

CLIENT_ID: Final = "kafka-telemetry-testkit"

_LENGTH: Final = struct.Struct(">i")
_WITHIN_S: Final = 15.0
_LATEST_API_VERSIONS: Final = k18_api_versions.SUPPORTED_VERSIONS[-1]
_GET: Final = api_keys.GET_TELEMETRY_SUBSCRIPTIONS
_PUSH: Final = api_keys.PUSH_TELEMETRY


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a client connects to a broker."""

    tls: ssl.SSLContext | None = None
    """How it checks the broker's certificate; None for plaintext."""
    mechanism: str = "PLAIN"
    """The mechanism of SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    credentials: Credentials | None = None
    """The login; None for none."""


@dataclass(frozen=True, slots=True)
class GetAnswer:
    """The answer to GetTelemetrySubscriptions; version 1 has no id (KIP-1313)."""

    throttle_ms: int
    error: int
    instance_id: Uuid
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """The answer to PushTelemetry; ``error`` is None if the connection was closed."""

    error: int | None
    throttle_ms: int = 0


class BrokerClient:
    """A connection to a broker, within its context.

    Raises:
        OSError: The broker does not answer in time, or ends the connection.
        WireError: An answer is malformed.
    """

    def __init__(self, address: HostPort, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection((address.host, address.port), timeout=_WITHIN_S)
        self._correlations = itertools.count(1)
        if tls is not None:
            try:
                self._socket = tls.wrap_socket(self._socket, server_hostname=address.host)
            except BaseException:
                self._socket.close()
                raise

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def api_versions(
        self,
        version: int = 3,
        *,
        name: str = CLIENT_ID,
        cluster_id: str | None = None,
        node_id: int = -1,
    ) -> ApiVersionsResponse:
        """Ask which versions the broker speaks (KIP-511, KIP-1242).

        A version that the kit does not know is sent with the body of version 5.
        """
        asked = ApiVersionsRequest(
            client_software_name=name,
            client_software_version="1",
            cluster_id=cluster_id,
            node_id=node_id,
        )
        known = min(version, _LATEST_API_VERSIONS)
        answer = self._ask(api_keys.API_VERSIONS, version, k18_api_versions.encode_request(asked, known))
        return k18_api_versions.decode_response(at_body(answer, api_keys.API_VERSIONS, known), known)

    def log_in(self, mechanism: str, credentials: Credentials) -> None:
        """Log in, after ApiVersions.

        Raises:
            BrokerLoginError: The broker refuses.
        """
        upstream = Upstream()
        answer = self.api_versions()
        upstream.learn({key.api_key: (key.min_version, key.max_version) for key in answer.api_keys})

        async def ask(key: int, version: int, body: bytes) -> bytes:
            return bytes(at_body(self._ask(key, version, body), key, version).rest_view())

        asyncio.run(log_in_as(ask, upstream, mechanism, credentials.user, credentials.password))

    def get(self, instance_id: Uuid = ZERO_UUID, *, version: int = 0) -> GetAnswer:
        """Ask for the subscriptions of an instance; zero for a new one in version 0."""
        asked = GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
        body = k71_get_telemetry_subscriptions.encode_request(asked, version)
        answer = self._ask(_GET, version, body, instance_id)
        told = k71_get_telemetry_subscriptions.decode_response(at_body(answer, _GET, version), version)
        subscription = Subscription(
            id=told.subscription_id,
            metrics=told.requested_metrics,
            interval_ms=told.push_interval_ms,
            codecs=told.accepted_compression_types,
            max_bytes=told.telemetry_max_bytes,
            delta=told.delta_temporality,
        )
        return GetAnswer(told.throttle_time_ms, told.error_code, told.client_instance_id, subscription)

    def push(
        self,
        instance_id: Uuid,
        subscription_id: int,
        metrics: bytes | None,
        *,
        codec: int = 0,
        terminating: bool = False,
        version: int = 0,
    ) -> PushAnswer:
        """Push metrics as they are; None is null."""
        pushed = PushTelemetryRequest(
            client_instance_id=instance_id,
            subscription_id=subscription_id,
            terminating=terminating,
            compression_type=codec,
            metrics=metrics,
        )
        try:
            body = k72_push_telemetry.encode_request(pushed, version)
            answer = self._ask(_PUSH, version, body, instance_id)
        except (ConnectionError, EOFError, ssl.SSLEOFError):
            return PushAnswer(None)
        told = k72_push_telemetry.decode_response(at_body(answer, _PUSH, version), version)
        return PushAnswer(told.error_code, told.throttle_time_ms)

    def _ask(self, key: int, version: int, body: bytes, instance_id: Uuid | None = None) -> bytes:
        """Send a request, with an instance id in header v3 (KIP-1313)."""
        header = RequestHeader(key, version, next(self._correlations), CLIENT_ID, instance_id)
        # A later version of ApiVersions is flexible as well.
        later = key == api_keys.API_VERSIONS and version > _LATEST_API_VERSIONS
        frame = encode_request_header(header, 2 if later else None) + body
        self._socket.sendall(_LENGTH.pack(len(frame)) + frame)
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if not 4 <= size <= MAX_FRAME_BYTES:
            raise WireError(expected="a response of 4 bytes to 16 MiB", offset=0, found=f"{size} bytes")
        answer = self._exactly(size)
        found = Reader(answer).int32("CorrelationId")
        if found != header.correlation_id:
            raise WireError(expected=f"correlation id {header.correlation_id}", offset=0, found=str(found))
        return answer

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError("the broker ended the connection")
            data += part
        return bytes(data)


@contextlib.contextmanager
def connected(address: HostPort, access: Access) -> Iterator[BrokerClient]:
    """Connect to a broker as a client of its own, and log in if need be."""
    with contextlib.closing(BrokerClient(address, access.tls)) as client:
        if access.credentials is None:
            client.api_versions()
        else:
            client.log_in(access.mechanism, access.credentials)
        yield client
