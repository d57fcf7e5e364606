"""The test kit without sockets: frames and times in, answers and a recording out.

It owns the bounds. A client under test may be malformed or send without end, so connections,
recorded requests and recorded metrics have a bound each. What is over a bound is answered and not
recorded, and the report says so.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from receiver.telemetry.errors import PushError
from receiver.testkit.data_path import RANGES, DataPath, Node
from receiver.testkit.payload import read_payload
from receiver.testkit.progress import Progress, Treatment
from receiver.testkit.recording import CLIENT, KIT, Connection, Get, Hello, Push, Request
from receiver.testkit.script import Script
from receiver.wire import (
    api_keys,
    k17_sasl_handshake,
    k18_api_versions,
    k36_sasl_authenticate,
    k71_get_telemetry_subscriptions,
    k72_push_telemetry,
)
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.headers import (
    RequestHeader,
    ResponseHeader,
    decode_request_header,
    encode_response_header,
    response_header_version,
)
from receiver.wire.k17_sasl_handshake import SaslHandshakeResponse
from receiver.wire.k18_api_versions import ApiVersion, ApiVersionsResponse
from receiver.wire.k36_sasl_authenticate import SaslAuthenticateResponse
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from receiver.wire.k72_push_telemetry import PushTelemetryResponse
from receiver.wire.primitives import Reader
from receiver.wire.telemetry_requests import decode_telemetry_request
from receiver.wire.uuid import RESERVED_UUIDS, Uuid, random_uuid

#: The longest request in bytes.
MAX_FRAME_BYTES: Final = 16 << 20

#: The most connections at a time.
MAX_CONNECTIONS: Final = 256

_MAX_CONNECTIONS_RECORDED: Final = 10_000
_MAX_REQUESTS: Final = 200_000
_MAX_REQUESTS_OF_CONNECTION: Final = 20_000
_MAX_POINTS: Final = 500_000
_MAX_CLIENTS: Final = 1_000

_OWN_RANGES: Final[Mapping[int, tuple[int, int]]] = {
    key: (versions[0], versions[-1])
    for key, versions in (
        (api_keys.SASL_HANDSHAKE, k17_sasl_handshake.SUPPORTED_VERSIONS),
        (api_keys.API_VERSIONS, k18_api_versions.SUPPORTED_VERSIONS),
        (api_keys.SASL_AUTHENTICATE, k36_sasl_authenticate.SUPPORTED_VERSIONS),
        (api_keys.GET_TELEMETRY_SUBSCRIPTIONS, k71_get_telemetry_subscriptions.SUPPORTED_VERSIONS),
        (api_keys.PUSH_TELEMETRY, k72_push_telemetry.SUPPORTED_VERSIONS),
    )
}
_SASL: Final = frozenset({api_keys.SASL_HANDSHAKE, api_keys.SASL_AUTHENTICATE})
_BEFORE_LOGIN: Final = _SASL | {api_keys.API_VERSIONS}


@dataclass(frozen=True, slots=True)
class Credentials:
    """The user and password of SASL PLAIN."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """What becomes of a request."""

    data: bytes | None
    """The answer without its length; None for no answer."""
    delay_s: float = 0.0
    """Seconds until the answer."""
    close: bool = False
    """Whether the connection ends, after the answer if there is one."""
    request: Request | None = None
    """The recorded request; None if it could not be read."""


@dataclass(slots=True)
class _Login:
    """The state of SASL on a connection."""

    done: bool = False
    raw_token: bool = False


class Kit:
    """Brokers that speak telemetry, follow a script and record.

    Args:
        random_bytes: Returns that many random bytes, like ``os.urandom``.
        credentials: The login that clients need; None for none.
        wall_ns: The time in nanoseconds since the epoch at monotonic second 0.
    """

    def __init__(
        self,
        script: Script,
        *,
        cluster_id: str,
        random_bytes: Callable[[int], bytes],
        credentials: Credentials | None = None,
        wall_ns: int = 0,
    ) -> None:
        self.connections: list[Connection] = []
        self.script = script
        self._cluster_id = cluster_id
        self._random_bytes = random_bytes
        self._credentials = credentials
        self._wall_ns = wall_ns
        self._data_path = DataPath(cluster_id)
        self._progress: dict[Uuid, Progress] = {}
        self._logins: dict[int, _Login] = {}
        self._ranges = {**RANGES, **_OWN_RANGES}
        if credentials is None:
            self._ranges = {key: span for key, span in self._ranges.items() if key not in _SASL}
        self._requests = self._points = 0
        self._number = 0

    def open(self, now: float, node_id: int) -> Connection:
        """Record a new connection to one of the brokers."""
        self._number += 1
        connection = Connection(number=self._number, node_id=node_id, opened=now)
        if len(self.connections) < _MAX_CONNECTIONS_RECORDED:
            self.connections.append(connection)
        self._logins[connection.number] = _Login(done=self._credentials is None)
        return connection

    def close(self, now: float, connection: Connection, by: str = CLIENT) -> None:
        """Record the end of a connection; only the first call counts."""
        if connection.closed is None:
            connection.closed, connection.closed_by = now, by
        if by == KIT:  # requests that a client sent before it ended are still read
            self._logins.pop(connection.number, None)

    def take(self, now: float, connection: Connection, frame: bytes, nodes: Sequence[Node]) -> Reply:
        """Read a request and decide what becomes of it.

        Args:
            now: When its last byte arrived, in monotonic seconds.
            frame: The request without its length.
            nodes: The brokers, with addresses that the client can reach.
        """
        login = self._logins[connection.number]
        if login.raw_token:
            login.raw_token = False
            login.done = self._authenticates(frame)
            return Reply(b"", close=not login.done)
        try:
            reader = Reader(frame)
            header = decode_request_header(reader)
            return self._answered(now, connection, header, reader, nodes)
        except (WireError, ValueError) as error:
            connection.problem = connection.problem or _problem(frame, error)
            return Reply(None, close=True)

    def _answered(
        self, now: float, connection: Connection, header: RequestHeader, reader: Reader, nodes: Sequence[Node]
    ) -> Reply:
        key, version = header.api_key, header.api_version
        span = self._ranges.get(key)
        if key == api_keys.API_VERSIONS:
            return self._hello(now, connection, header, reader)
        if span is None or not span[0] <= version <= span[1]:
            raise ValueError("the kit does not offer this API key and version")
        if not self._logins[connection.number].done and key not in _BEFORE_LOGIN:
            raise ValueError("the client has not logged in")
        if key == api_keys.GET_TELEMETRY_SUBSCRIPTIONS:
            return self._get(now, connection, header, reader)
        if key == api_keys.PUSH_TELEMETRY:
            return self._push(now, connection, header, reader)
        request = Request(**_common(now, connection, header))
        self._record(request)
        if key in _SASL:
            return self._sasl(request, header, reader)
        answer = self._data_path.answer(key, version, reader.rest_view(), nodes)
        if answer.body is None:
            return Reply(None, request=request)
        return Reply(_response(header, answer.body), answer.delay_s, request=request)

    def _hello(self, now: float, connection: Connection, header: RequestHeader, reader: Reader) -> Reply:
        versions = k18_api_versions.SUPPORTED_VERSIONS
        if header.api_version not in versions:
            request = Hello(**_common(now, connection, header), error=ErrorCode.UNSUPPORTED_VERSION)
            self._record(request)
            return Reply(_response(header, k18_api_versions.unsupported_version_body()), request=request)
        asked = k18_api_versions.decode_request(reader, header.api_version)
        request = Hello(
            **_common(now, connection, header),
            software_name=asked.client_software_name,
            software_version=asked.client_software_version,
            cluster_id=asked.cluster_id,
            broker_id=asked.node_id,
        )
        request.error = self._hello_error(request)
        self._record(request)
        keys = tuple(
            ApiVersion(api_key=key, min_version=least, max_version=greatest)
            for key, (least, greatest) in sorted(self._ranges.items())
        )
        answer = ApiVersionsResponse(error_code=request.error, api_keys=() if request.error else keys)
        body = k18_api_versions.encode_response(answer, header.api_version)
        return Reply(_response(header, body), request=request)

    def _hello_error(self, request: Hello) -> int:
        """Check what Kafka checks (KIP-511; KIP-1242, "ApiVersions")."""
        if request.api_version >= 3 and not k18_api_versions.is_valid_client_information(
            request.software_name, request.software_version
        ):
            return ErrorCode.INVALID_REQUEST
        if (request.cluster_id is None) != (request.broker_id == -1):
            return ErrorCode.INVALID_REQUEST
        here = (self._cluster_id, request.connection.node_id)
        if request.cluster_id is not None and (request.cluster_id, request.broker_id) != here:
            return ErrorCode.REBOOTSTRAP_REQUIRED
        return ErrorCode.NONE

    def _get(self, now: float, connection: Connection, header: RequestHeader, reader: Reader) -> Reply:
        asked = decode_telemetry_request(header, bytes(reader.rest_view()))
        instance_id = asked.client_instance_id
        assigned = random_uuid(self._random_bytes) if instance_id in RESERVED_UUIDS else instance_id
        request = Get(**_common(now, connection, header), instance_id=instance_id, assigned=assigned)
        treatment = self._progress_of(assigned, now).get(request)
        self._record(request)
        if treatment.unanswered:
            return Reply(None, treatment.delay_s, close=True, request=request)
        request.error, request.throttle_ms = treatment.error, treatment.throttle_ms
        told = request.subscription
        answer = GetTelemetrySubscriptionsResponse(
            throttle_time_ms=treatment.throttle_ms,
            error_code=treatment.error,
            client_instance_id=assigned,
            subscription_id=told.id if told else 0,
            accepted_compression_types=told.codecs if told else (),
            push_interval_ms=told.interval_ms if told else 0,
            telemetry_max_bytes=told.max_bytes if told else 0,
            delta_temporality=bool(told and told.delta),
            requested_metrics=told.metrics if told else (),
        )
        body = k71_get_telemetry_subscriptions.encode_response(answer, header.api_version)
        return Reply(_response(header, body), treatment.delay_s, treatment.disconnect, request)

    def _push(self, now: float, connection: Connection, header: RequestHeader, reader: Reader) -> Reply:
        pushed = k72_push_telemetry.decode_request(reader, header.api_version)
        metrics = pushed.metrics
        request = Push(
            **_common(now, connection, header),
            instance_id=pushed.client_instance_id
            if header.client_instance_id is None
            else header.client_instance_id,
            subscription_id=pushed.subscription_id,
            terminating=pushed.terminating,
            codec=pushed.compression_type,
            size=-1 if metrics is None else len(metrics),
            wall_ns=self._wall_ns + round(now * 1e9),
        )
        treatment = self._progress_of(request.instance_id, now).push(request)
        if metrics and self._record(request) and self._points < _MAX_POINTS:
            self._read(request, metrics)
        elif not metrics:
            self._record(request)
        return self._pushed(request, header, treatment)

    def _read(self, request: Push, metrics: bytes | memoryview) -> None:
        try:
            request.payload = read_payload(request.codec, metrics)
        except PushError as error:
            request.problem = str(error)
        else:
            self._points += len(request.payload.points)

    def _pushed(self, request: Push, header: RequestHeader, treatment: Treatment) -> Reply:
        if treatment.unanswered:
            return Reply(None, treatment.delay_s, close=True, request=request)
        request.error, request.throttle_ms = treatment.error, treatment.throttle_ms
        answer = PushTelemetryResponse(throttle_time_ms=treatment.throttle_ms, error_code=treatment.error)
        body = k72_push_telemetry.encode_response(answer, header.api_version)
        return Reply(_response(header, body), treatment.delay_s, treatment.disconnect, request)

    def _sasl(self, request: Request, header: RequestHeader, reader: Reader) -> Reply:
        login = self._logins[request.connection.number]
        if header.api_key == api_keys.SASL_HANDSHAKE:
            mechanism = k17_sasl_handshake.decode_request(reader, header.api_version).mechanism
            known = mechanism == "PLAIN"
            login.raw_token = known and header.api_version == 0
            request.error = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
            shaken = SaslHandshakeResponse(error_code=request.error, mechanisms=("PLAIN",))
            body = k17_sasl_handshake.encode_response(shaken, header.api_version)
            return Reply(_response(header, body), close=not known, request=request)
        token = k36_sasl_authenticate.decode_request(reader, header.api_version).auth_bytes
        login.done = self._authenticates(token)
        request.error = ErrorCode.NONE if login.done else ErrorCode.SASL_AUTHENTICATION_FAILED
        message = None if login.done else "Authentication failed: wrong user or password"
        answer = SaslAuthenticateResponse(error_code=request.error, error_message=message)
        body = k36_sasl_authenticate.encode_response(answer, header.api_version)
        return Reply(_response(header, body), close=not login.done, request=request)

    def _authenticates(self, token: bytes) -> bool:
        """Check a token of SASL PLAIN (RFC 4616): authorization id, user, password."""
        if self._credentials is None:
            return False
        expected = f"{self._credentials.user}\0{self._credentials.password}".encode()
        given = token.partition(b"\0")[2]
        return hmac.compare_digest(given, expected)

    def _progress_of(self, instance_id: Uuid, now: float) -> Progress:
        progress = self._progress.get(instance_id)
        if progress is None:
            progress = Progress(self.script, now)
            if len(self._progress) < _MAX_CLIENTS:
                self._progress[instance_id] = progress
        return progress

    def _record(self, request: Request) -> bool:
        """Record a request, if the bounds allow; telemetry has more room."""
        connection = request.connection
        usual = type(request) is Request
        most = _MAX_REQUESTS_OF_CONNECTION // 2 if usual else _MAX_REQUESTS_OF_CONNECTION
        if self._requests >= _MAX_REQUESTS or len(connection.requests) >= most:
            connection.unrecorded += 1
            return False
        self._requests += 1
        connection.requests.append(request)
        return True


def _common(now: float, connection: Connection, header: RequestHeader) -> dict[str, Any]:
    return {
        "connection": connection,
        "at": now,
        "api_key": header.api_key,
        "api_version": header.api_version,
        "client_id": header.client_id,
        "header_id": header.client_instance_id,
    }


def _response(header: RequestHeader, body: bytes) -> bytes:
    version = response_header_version(header.api_key, header.api_version)
    return encode_response_header(ResponseHeader(correlation_id=header.correlation_id), version) + body


def _problem(frame: bytes, error: Exception) -> str:
    if len(frame) < 4:
        return f"a request of {len(frame)} bytes"
    key, version = struct.unpack_from(">hh", frame)
    return f"{api_keys.api_name(key)} version {version}: {error}"
