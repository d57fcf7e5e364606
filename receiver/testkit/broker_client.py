"""A scripted telemetry client, which asks a broker one thing at a time.

It speaks to anything that offers telemetry: the receiver, a Kafka broker with a plugin, the test
kit. It decides nothing; :mod:`receiver.testkit.broker_checks` does.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from receiver.settings.hostport import HostPort
from receiver.testkit.kit import MAX_FRAME_BYTES
from receiver.testkit.recording import Subscription
from receiver.wire import api_keys, k18_api_versions
from receiver.wire.errors import WireError
from receiver.wire.headers import RequestHeader, at_body, encode_request_header
from receiver.wire.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from receiver.wire.primitives import Reader
from receiver.wire.uuid import ZERO_UUID, Uuid
from receiver.wire.writer import Writer

CLIENT_ID: Final = "kafka-telemetry-testkit"

_LENGTH: Final = struct.Struct(">i")
_WITHIN_S: Final = 15.0
_LATEST_API_VERSIONS: Final = k18_api_versions.SUPPORTED_VERSIONS[-1]
_GET: Final = api_keys.GET_TELEMETRY_SUBSCRIPTIONS
_PUSH: Final = api_keys.PUSH_TELEMETRY


@dataclass(frozen=True, slots=True)
class GetAnswer:
    """The answer to GetTelemetrySubscriptions v0 (KIP-714)."""

    throttle_ms: int
    error: int
    instance_id: Uuid
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """The answer to PushTelemetry v0; ``error`` is None if the connection was closed."""

    error: int | None
    throttle_ms: int = 0


class BrokerClient:
    """A connection to a broker, within its context.

    Args:
        tls: How to check its certificate; None for plaintext.

    Raises:
        OSError: The broker does not answer in time, or ends the connection.
        WireError: An answer is malformed.
    """

    def __init__(self, address: HostPort, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection((address.host, address.port), timeout=_WITHIN_S)
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=address.host)
        self._correlations = itertools.count(1)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def api_versions(
        self, version: int = 3, *, cluster_id: str | None = None, node_id: int = -1
    ) -> ApiVersionsResponse:
        """Ask which versions the broker speaks (KIP-511, KIP-1242).

        A version that the kit does not know is sent with the body of version 5.
        """
        asked = ApiVersionsRequest(
            client_software_name="kafka-telemetry-testkit",
            client_software_version="1",
            cluster_id=cluster_id,
            node_id=node_id,
        )
        known = min(version, _LATEST_API_VERSIONS)
        answer = self._ask(api_keys.API_VERSIONS, version, k18_api_versions.encode_request(asked, known))
        return k18_api_versions.decode_response(at_body(answer, api_keys.API_VERSIONS, known), known)

    def get(self, instance_id: Uuid = ZERO_UUID) -> GetAnswer:
        """Ask for the subscriptions of an instance; zero for a new one."""
        answer = self._ask(_GET, 0, instance_id + b"\0")
        reader = at_body(answer, _GET, 0)
        throttle_ms, error = reader.int32("ThrottleTimeMs"), reader.int16("ErrorCode")
        given, number = reader.uuid("ClientInstanceId"), reader.int32("SubscriptionId")
        codecs = reader.compact_array_length("AcceptedCompressionTypes")
        accepted = tuple([reader.int8("AcceptedCompressionTypes") for _ in range(codecs)])
        interval_ms, max_bytes = reader.int32("PushIntervalMs"), reader.int32("TelemetryMaxBytes")
        delta = bool(reader.int8("DeltaTemporality"))
        prefixes = reader.compact_array_length("RequestedMetrics")
        metrics = tuple([reader.compact_string("RequestedMetrics") for _ in range(prefixes)])
        subscription = Subscription(
            id=number,
            metrics=metrics,
            interval_ms=interval_ms,
            codecs=accepted,
            max_bytes=max_bytes,
            delta=delta,
        )
        return GetAnswer(throttle_ms, error, given, subscription)

    def push(
        self,
        instance_id: Uuid,
        subscription_id: int,
        metrics: bytes | None,
        *,
        codec: int = 0,
        terminating: bool = False,
    ) -> PushAnswer:
        """Push metrics as they are; None is null."""
        writer = Writer()
        writer.uuid(instance_id)
        writer.int32(subscription_id)
        writer.boolean(terminating)
        writer.int8(codec)
        if metrics is None:
            writer.unsigned_varint(0)
        else:
            writer.compact_bytes_field(metrics)
        writer.tagged_fields(())
        try:
            answer = self._ask(_PUSH, 0, writer.take())
        except (ConnectionError, EOFError):
            return PushAnswer(None)
        reader = at_body(answer, _PUSH, 0)
        throttle_ms = reader.int32("ThrottleTimeMs")
        return PushAnswer(reader.int16("ErrorCode"), throttle_ms)

    def _ask(self, key: int, version: int, body: bytes) -> bytes:
        header = RequestHeader(key, version, next(self._correlations), CLIENT_ID)
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
def connected(address: HostPort, tls: ssl.SSLContext | None = None) -> Iterator[BrokerClient]:
    """Connect to a broker as a client of its own, which has sent ApiVersions."""
    with contextlib.closing(BrokerClient(address, tls)) as client:
        client.api_versions()
        yield client
