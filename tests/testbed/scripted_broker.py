"""Runs a broker that a test scripts, for faults and exact timing.

It speaks as much Kafka as a sidecar asks of the broker behind it (ApiVersions, Metadata for no
topics, SaslHandshake) and answers everything else with an echo of its body. Whatever a real broker
can show is better shown with :mod:`tests.testbed.broker`.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from tests.testbed.ports import LOOPBACK, free_port

PRODUCE, METADATA, SASL_HANDSHAKE, API_VERSIONS, DESCRIBE_CONFIGS = 0, 3, 17, 18, 32

#: What Kafka 4.4 says of the keys that matter here.
RANGES: Mapping[int, tuple[int, int]] = MappingProxyType(
    {PRODUCE: (0, 13), METADATA: (0, 13), SASL_HANDSHAKE: (0, 1), API_VERSIONS: (0, 5), 36: (0, 2)}
)
CLUSTER_ID = "scripted-cluster-AAAAA"
NODE_ID = 1

_UNSUPPORTED_VERSION, _INVALID_REQUEST, _REBOOTSTRAP_REQUIRED = 35, 42, 129
_BACKLOG = 512
_RESET = struct.pack("ii", 1, 0)
_JOIN_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as far as every request is alike.

    Attributes:
        api_key: Its API key.
        api_version: Its API version.
        correlation_id: Its correlation id.
        client_id: Its client id.
        body: Everything after the client id: tagged fields of the header too, where it has some.
        data: The whole frame, without its length.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: bytes
    data: bytes


def parse(data: bytes) -> Request:
    """Read a request's header.

    Raises:
        struct.error: It is too short for one.
    """
    api_key, api_version, correlation_id, length = struct.unpack_from(">hhih", data)
    end = 10 + max(0, length)
    return Request(
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        client_id=data[10:end].decode() if length >= 0 else None,
        body=data[end:],
        data=data,
    )


def framed(data: bytes) -> bytes:
    """The data behind its length."""
    return struct.pack(">i", len(data)) + data


def request_frame(
    api_key: int, api_version: int, correlation_id: int, body: bytes = b"", client_id: str = "raw"
) -> bytes:
    """Return a request with a v1 header, as a frame; tagged fields go into ``body``."""
    name = client_id.encode()
    return framed(struct.pack(">hhih", api_key, api_version, correlation_id, len(name)) + name + body)


def produce_frame(correlation_id: int, payload: bytes = b"", *, acks: int = 1) -> bytes:
    """A Produce v3 request as far as its acks, and a payload where its records would be."""
    return request_frame(PRODUCE, 3, correlation_id, struct.pack(">hh", -1, acks) + payload)


def split(stream: bytes) -> list[bytes]:
    """The whole frames of a stream, without their lengths.

    Raises:
        ValueError: It doesn't end where a frame ends.
    """
    frames = []
    while stream:
        end = 4 + int.from_bytes(stream[:4], "big")
        if len(stream) < end:
            raise ValueError(f"{end - len(stream)} bytes are missing")
        frames.append(stream[4:end])
        stream = stream[end:]
    return frames


class Answers:
    """What a broker answers on one connection, request by request, in order. Does no I/O.

    Args:
        ranges: The versions that it speaks, by API key.
        cluster_id: Its cluster's id.
        node_id: Its own.

    Attributes:
        seen: Every request so far.
        throttle_time_ms: For how long it throttles clients, in Metadata responses.
    """

    def __init__(
        self,
        *,
        ranges: Mapping[int, tuple[int, int]] = RANGES,
        cluster_id: str = CLUSTER_ID,
        node_id: int = NODE_ID,
    ) -> None:
        self.ranges = dict(ranges)
        self.seen: list[Request] = []
        self.throttle_time_ms = 0
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._tokens = False

    def to(self, data: bytes) -> bytes | None:
        """Return the answer to a frame, both without length; None if there is none.

        After SaslHandshake v0 the next frame is a bare token, answered by an empty one.
        """
        if self._tokens:
            self._tokens = False
            return b""
        request = parse(data)
        self.seen.append(request)
        correlation_id = struct.pack(">i", request.correlation_id)
        if request.api_key == API_VERSIONS:
            return correlation_id + self._api_versions(request)
        if request.api_key == METADATA:
            return correlation_id + self._metadata(request.api_version)
        if request.api_key == DESCRIBE_CONFIGS and DESCRIBE_CONFIGS in self.ranges:
            return correlation_id + self._describe_configs(request)
        if request.api_key == SASL_HANDSHAKE:
            self._tokens = request.api_version == 0
            return correlation_id + struct.pack(">hih", 0, 1, 5) + b"PLAIN"
        if request.api_key == PRODUCE and struct.unpack_from(">h", request.body, 2)[0] == 0:
            return None
        return correlation_id + request.body

    def _api_versions(self, request: Request) -> bytes:
        version = request.api_version
        least, greatest = self.ranges[API_VERSIONS]
        if not least <= version <= greatest:
            own = struct.pack(">hhh", API_VERSIONS, least, greatest)
            return struct.pack(">hi", _UNSUPPORTED_VERSION, 1) + own
        error = 0
        if version >= 5:
            _, rest = _compact_string(request.body[1:])
            _, rest = _compact_string(rest)
            cluster_id, rest = _compact_string(rest)
            (node_id,) = struct.unpack_from(">i", rest)
            if (cluster_id is None) != (node_id == -1):
                error = _INVALID_REQUEST
            elif cluster_id is not None and (cluster_id, node_id) != (self._cluster_id, self._node_id):
                error = _REBOOTSTRAP_REQUIRED
        entries = [] if error else [struct.pack(">hhh", key, *span) for key, span in self.ranges.items()]
        if version < 3:
            body = struct.pack(">hi", error, len(entries)) + b"".join(entries)
            return body + (bytes(4) if version else b"")
        body = struct.pack(">hB", error, len(entries) + 1) + b"".join(entry + b"\0" for entry in entries)
        return body + bytes(4) + b"\0"

    def _describe_configs(self, request: Request) -> bytes:
        """Describe the node id of resources of type BROKER, versions 1 to 3."""
        body = request.body
        (count,) = struct.unpack_from(">i", body)
        at, results = 4, b""
        for _ in range(count):
            kind, length = struct.unpack_from(">bh", body, at)
            name = body[at + 3 : at + 3 + length]
            at += 3 + length
            (keys,) = struct.unpack_from(">i", body, at)
            at += 4
            for _ in range(keys):
                at += 2 + struct.unpack_from(">h", body, at)[0]
            own = name == str(self._node_id).encode()
            results += struct.pack(">hhbh", 0 if own else _INVALID_REQUEST, -1, kind, length) + name
            results += struct.pack(">i", int(own))
            if own:
                results += struct.pack(">h7sh", 7, b"node.id", length) + name + b"\1\4\0" + bytes(4)
                results += b"\3\xff\xff" if request.api_version >= 3 else b""
        return bytes(4) + struct.pack(">i", count) + results

    def _metadata(self, version: int) -> bytes:
        host, cluster = LOOPBACK.encode(), self._cluster_id.encode()
        throttle = struct.pack(">i", self.throttle_time_ms) if version >= 3 else b""
        node = struct.pack(">i", self._node_id)
        if version >= 9:
            tags = b"\0"
            broker = b"\x02" + node + _compact(host) + bytes(4) + b"\0" + tags
            operations = bytes(4) if version <= 10 else b""
            error = bytes(2) if version >= 13 else b""
            return tags + throttle + broker + _compact(cluster) + node + b"\x01" + operations + error + tags
        broker = struct.pack(">i", 1) + node + struct.pack(">h", len(host)) + host + bytes(4)
        rack = struct.pack(">h", -1) if version >= 1 else b""
        cluster_id = struct.pack(">h", len(cluster)) + cluster if version >= 2 else b""
        controller = node if version >= 1 else b""
        operations = bytes(4) if version == 8 else b""
        return throttle + broker + rack + cluster_id + controller + bytes(4) + operations


def _compact(text: bytes) -> bytes:
    return bytes([len(text) + 1]) + text


def _compact_string(data: bytes) -> tuple[str | None, bytes]:
    """Read a compact nullable string of less than 127 bytes; also returns what follows it."""
    if data[0] == 0:
        return None, data[1:]
    return data[1 : data[0]].decode(), data[data[0] :]


class Peer:
    """One accepted connection, in the hands of a script that runs in a thread of its own.

    Attributes:
        socket: The connection, blocking.
        answers: What a broker would say on it.
        ended: Set when the script is over.
        trouble: What ended the script before its end: a reset, or the connection's close by the
            test.
    """

    def __init__(self, connection: socket.socket, answers: Answers) -> None:
        self.socket = connection
        self.answers = answers
        self.ended = threading.Event()
        self.trouble: OSError | None = None

    def read(self, count: int) -> bytes:
        """Wait for so many bytes; fewer only at the stream's end."""
        data = bytearray()
        while len(data) < count and (chunk := self.socket.recv(min(count - len(data), 1 << 20))):
            data += chunk
        return bytes(data)

    def frames(self) -> Iterator[bytes]:
        """Yield whole frames without their length, until the end or a negative length."""
        while len(length := self.read(4)) == 4:
            size = int.from_bytes(length, "big", signed=True)
            if size < 0 or len(frame := self.read(size)) < size:
                return
            yield frame

    def serve(self) -> None:
        """Answer as a broker does, until the client ends."""
        for data in self.frames():
            self.answer(data)

    def answer(self, data: bytes) -> None:
        """Answer one frame as a broker does."""
        answer = self.answers.to(data)
        if answer is not None:
            self.socket.sendall(framed(answer))

    def end(self) -> None:
        """Say that nothing more will be sent (FIN); go on reading."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.socket.close()


Script = Callable[[Peer], None]


class ScriptedBroker:
    """A listening broker whose connections each run a script; listens on entering the context.

    Args:
        ranges: The versions that it speaks, by API key.
        cluster_id: Its cluster's id.
        node_id: Its own.

    Attributes:
        port: Where it listens.
        script: What connections do that are accepted from now on; :meth:`Peer.serve` unless set.
        peers: Every connection so far, in order of acceptance.
    """

    def __init__(
        self,
        *,
        ranges: Mapping[int, tuple[int, int]] = RANGES,
        cluster_id: str = CLUSTER_ID,
        node_id: int = NODE_ID,
    ) -> None:
        self.port = free_port()
        self.script: Script = Peer.serve
        self.peers: list[Peer] = []
        self._answers: Callable[[], Answers] = lambda: Answers(
            ranges=ranges, cluster_id=cluster_id, node_id=node_id
        )
        self._listening: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, again after :meth:`stop`, on the same port.

        Raises:
            OSError: The port is taken.
        """
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, self.port))
        listening.listen(_BACKLOG)
        self._listening = listening
        self._run(self._accept, listening)

    def refuse(self) -> None:
        """Stop listening: new connections are refused by the system, those that are open go on."""
        if self._listening is not None:
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept(), as close() does not
            self._listening.close()
            self._listening = None

    def stop(self) -> None:
        """Stop listening and end every connection.

        Raises:
            TimeoutError: A script goes on although its connection is closed.
        """
        self.refuse()
        until = time.monotonic() + _JOIN_WITHIN_S
        while any(thread.is_alive() for thread in self._threads):
            # Again and again, because a connection may just be accepted, or wrapped for TLS.
            for peer in self.peers:
                with contextlib.suppress(OSError):
                    # Not SSLSocket's own, which takes TLS off under the script's feet.
                    socket.socket.shutdown(peer.socket, socket.SHUT_RDWR)
            for thread in self._threads:
                thread.join(0.05)
            if time.monotonic() > until:
                raise TimeoutError("a script of the broker outlives its connection")
        self._threads.clear()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # it was closed: the end
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = Peer(connection, self._answers())
            self.peers.append(peer)
            self._run(self._follow, peer, self.script)

    def _follow(self, peer: Peer, script: Script) -> None:
        with peer.socket:
            try:
                script(peer)
            except StopIteration:
                pass  # next(peer.frames()) where the client sent none
            except OSError as error:
                peer.trouble = error
            finally:
                peer.ended.set()

    def _run(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        self._threads = [known for known in self._threads if known.is_alive()] + [thread]
