"""Fuzzes the TLS relay with TLS 1.3 records; frames must come out unchanged.

An input is a script: each byte is an instruction, most with an argument behind it. The handshake is
real, and so are the relay and its event loop. The records are written by
:mod:`tests.testbed.tls13`, because OpenSSL would not write most of them.

What must hold: what comes out is what went in, whole where every record was in order; no error of
ours; and no single callback takes in more than a bounded number of bytes.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import functools
import shutil
import socket
import ssl
import struct
import tempfile
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from random import Random
from typing import Any, Final

from receiver.event_loop import running_loop
from receiver.gateway.connection.closing import CloseReason
from receiver.gateway.connection.direction import Direction
from receiver.gateway.connection.tls_socket import TlsSocket, wrap
from receiver.gateway.tls import server_context
from receiver.settings.listeners import TlsSettings
from tests.fuzz.target import Target, require
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.testbed.scripted_broker import produce_frame
from tests.testbed.tls13 import (
    ALERT,
    APPLICATION_DATA,
    CHANGE_CIPHER_SPEC,
    HANDSHAKE,
    MAX_CONTENT_BYTES,
    RecordWriter,
    Tls13Client,
    plaintext_record,
)
from tests.unit.gateway.support import Relayed, on_loop, pair

#: The most that one callback may take in: so many records, and what a receiver may have read ahead
#: of them.
MAX_RECORDS_A_CALLBACK: Final = 96
MAX_AHEAD_BYTES: Final = 131_072
#: Ciphertext of one input. More than the bound, so that a callback without one is seen.
_MAX_STREAM_BYTES: Final = 2_097_152
_PADDING: Final = 16_000
_MAX_PIECES: Final = 500
#: So many records without application data belong to a connection in order; a receiver may refuse
#: more.
_IN_ORDER_WITHOUT_DATA: Final = 8
#: OpenSSL refuses the fifth warning.
_IN_ORDER_WARNINGS: Final = 4
_ENDS_WITHIN_S: Final = 120.0
_FRAME_BYTES: Final = 1000
_HEADER_BYTES: Final = 64
_SIOCOUTQNSD: Final = 0x894B


class _Do(IntEnum):
    """Instructions of a script."""

    SMALL = 0
    LARGE = 1
    TINY_ONES = 2
    EMPTY_ONES = 3
    UPDATE = 4
    UPDATE_REQUESTED = 5
    UPDATE_IN_PIECES = 6
    UPDATES = 7
    PADDED = 8
    CUT = 9
    PIECES = 10
    WARNING = 11
    FATAL = 12
    CLOSE = 13
    CORRUPTED = 14
    TRUNCATED = 15
    PLAIN = 16
    LONG_HEADER = 17
    OTHER_TYPE = 18
    REPEATED_RECORD = 19


@dataclass(slots=True)
class _Stream:
    """The result of a script.

    Attributes:
        segments: What is sent at once, one after the other.
        data: The application data in it.
        longest: Bytes of its longest record.
        whole: Whether every record was one that a connection in order may have.
    """

    segments: list[bytes] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    longest: int = 0
    whole: bool = True


def _stream(script: bytes, records: RecordWriter) -> _Stream:
    """Write the records of a script."""
    stream = _Stream()
    segment = bytearray()
    frames = _Frames()
    size = without_data = warnings = at = 0
    last = b""
    pieces = 0

    def flush() -> None:
        if pieces:
            # Each piece costs the fuzzer a turn of the loop.
            step = max(pieces, len(segment) // _MAX_PIECES)
            stream.segments.extend(bytes(segment[i : i + step]) for i in range(0, len(segment), step))
        elif segment:
            stream.segments.append(bytes(segment))
        segment.clear()

    def application(count: int, padding: int = 0) -> bytes:
        data = frames.take(count)
        stream.data.extend(data)
        return records.application_data(data, padding=padding)

    while at < len(script) and size < _MAX_STREAM_BYTES:
        instruction = _Do(script[at] % len(_Do))
        argument = script[at + 1] if at + 1 < len(script) else 0
        at += 2
        out = b""
        match instruction:
            case _Do.SMALL:
                out = application(argument)
                without_data += not argument
            case _Do.LARGE:
                out = application(min((argument + 1) * 64, MAX_CONTENT_BYTES))
            case _Do.TINY_ONES:
                out = b"".join(application(3) for _ in range(argument))
            case _Do.EMPTY_ONES:
                out = b"".join(records.application_data(b"") for _ in range(1 + argument % 8))
                without_data += 1 + argument % 8
            case _Do.UPDATE | _Do.UPDATE_REQUESTED:
                out = records.key_update(requested=instruction == _Do.UPDATE_REQUESTED)
                without_data += 1
            case _Do.UPDATE_IN_PIECES:
                out = records.key_update(records=2 + argument % 4)
                without_data += 2 + argument % 4
            case _Do.UPDATES:
                # Padded, because short ones cost the fuzzer more than the receiver.
                count = argument // 2
                out = b"".join(records.key_update(padding=_PADDING) for _ in range(count))
                without_data += count
            case _Do.PADDED:
                out = application(argument, padding=argument * 16)
                without_data += not argument
            case _Do.CUT:
                flush()
            case _Do.PIECES:
                flush()
                pieces = argument and argument + 16
            case _Do.WARNING:
                out = records.alert(argument, fatal=False)
                stream.whole &= argument == 90  # user_canceled; RFC 8446 lets no other warning pass
                warnings += 1
                without_data += 1
            case _Do.FATAL:
                out, stream.whole = records.alert(argument), False
            case _Do.CLOSE:
                out = records.close_notify()
                segment += out
                break
            case _Do.CORRUPTED:
                broken = bytearray(application(argument % 64 + 1))
                del stream.data[-(argument % 64 + 1) :]
                broken[5 + argument % (len(broken) - 5)] ^= 1 << argument % 8
                out, stream.whole = bytes(broken), False
            case _Do.TRUNCATED:
                segment += records.record(APPLICATION_DATA, bytes(64))[: argument % 64]
                break
            case _Do.PLAIN:
                kind = (CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA, argument)[argument % 5]
                out, stream.whole = plaintext_record(kind, b"\1" * (argument % 32)), False
            case _Do.LONG_HEADER:
                out, stream.whole = b"\x17\x03\x03" + bytes((0x41 + argument % 190, 1)), False
            case _Do.OTHER_TYPE:
                kind = HANDSHAKE if argument == APPLICATION_DATA else argument
                out, stream.whole = records.record(kind, b"\0" * (argument % 9)), False
            case _Do.REPEATED_RECORD:
                out, stream.whole = last, stream.whole and not last
        last = out or last
        stream.longest = max(stream.longest, _longest(out))
        size += len(out)
        segment += out
    flush()
    stream.whole &= without_data <= _IN_ORDER_WITHOUT_DATA and warnings <= _IN_ORDER_WARNINGS
    return stream


def _longest(records: bytes) -> int:
    longest = at = 0
    while at < len(records):
        size = 5 + int.from_bytes(records[at + 3 : at + 5], "big")
        longest = max(longest, size)
        at += size
    return longest


class _Frames:
    """Bytes of Produce requests that need no answer: a relay passes them on as they are."""

    def __init__(self) -> None:
        self._left = b""
        self._number = 0

    def take(self, count: int) -> bytes:
        """Return this many bytes."""
        while len(self._left) < count:
            self._number += 1
            payload = self._number.to_bytes(4, "big") * (_FRAME_BYTES // 4)
            self._left += produce_frame(self._number, payload, acks=0)
        taken, self._left = self._left[:count], self._left[count:]
        return taken


class _Meter:
    """How many bytes each callback of the relay takes out of a socket."""

    def __init__(self, outer: socket.socket, inner: socket.socket) -> None:
        self._outer, self._inner = outer, inner
        self.sent = 0
        self.most = 0

    def taken(self) -> int:
        """Bytes that were sent and have left the system for the relay."""
        if self._outer.fileno() == -1 or self._inner.fileno() == -1:
            return -1
        return self.sent - _queued(self._outer, _SIOCOUTQNSD) - _queued(self._inner, termios.FIONREAD)

    def watch(self, loop: Any) -> None:
        """Measure every callback of a direction that the loop calls from here on."""
        for name in ("set_direct_reader", "set_direct_writer", "call_soon"):
            setattr(loop, name, self._measured(getattr(loop, name)))

    def unwatch(self, loop: Any) -> None:
        """Measure nothing more."""
        for name in ("set_direct_reader", "set_direct_writer", "call_soon"):
            delattr(loop, name)

    def _measured(self, schedule: Callable[..., Any]) -> Callable[..., Any]:
        def scheduled(*arguments: Any, **named: Any) -> Any:
            return schedule(*map(self._callback, arguments), **named)

        return scheduled

    def _callback(self, argument: Any) -> Any:
        if not isinstance(getattr(argument, "__self__", None), Direction):
            return argument

        def callback(*arguments: Any) -> Any:
            before = self.taken()
            result = argument(*arguments)
            after = self.taken()
            if before >= 0 and after >= 0:  # else it has closed the connection
                self.most = max(self.most, after - before)
            return result

        return callback


def _queued(end: socket.socket, request: int) -> int:
    return int(struct.unpack("=i", fcntl.ioctl(end, request, bytes(4)))[0])


@functools.cache
def _files() -> CertificateFiles:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-tls-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return CertificateAuthority().issue().write(folder)


@functools.cache
def _context() -> ssl.SSLContext:
    files = _files()
    settings = TlsSettings.model_validate({"cert_file": files.chain, "key_file": files.key})
    return server_context("CLIENT", settings).current()


def _connected() -> tuple[Tls13Client, socket.socket, TlsSocket]:
    """A client and the gateway's end of its connection, after a handshake."""
    outer, inner = pair()
    client = Tls13Client(_files().ca)
    tls = wrap(_context(), inner, server_side=True)
    shake_hands: Any = tls.do_handshake  # what it says of a handshake under way is its own business
    outer.sendall(client.shake_hands(b""))
    for _ in range(100):
        try:
            is_over = shake_hands() is None
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            is_over = False
        try:
            said = outer.recv(65_536)
        except BlockingIOError:
            said = b""
        if said and not client.is_ready:
            outer.sendall(client.shake_hands(said))
        if is_over and client.is_ready:
            return client, outer, tls
    raise RuntimeError("the handshake does not end")


def _run(data: bytes) -> None:
    on_loop(_relay(data))


async def _relay(script: bytes) -> None:
    client, outer, tls = _connected()
    stream = _stream(script, client.records)
    loop = running_loop()
    meter = _Meter(outer, tls)
    meter.watch(loop)
    broker = pair()
    wire = Relayed(client=(outer, tls), broker=broker)
    received = bytearray()
    try:
        sender = asyncio.ensure_future(_send(outer, stream.segments, meter))
        await asyncio.wait_for(_receive_all(broker[0], received), _ENDS_WITHIN_S)
        await asyncio.wait_for(sender, _ENDS_WITHIN_S)
        broker[0].close()
        await wire.reason()
    finally:
        meter.unwatch(loop)
        wire.close()
    assert wire.closed is not None
    reason, error = wire.closed
    require(reason is not CloseReason.INTERNAL_ERROR, f"an error of ours: {error!r}")
    require(error is None or isinstance(error, OSError | ValueError), f"not a typed error: {error!r}")
    require(stream.data.startswith(received), "other bytes came out than went in")
    missing = len(stream.data) - len(received)
    # Of a frame that has hardly begun, a session may wait for more.
    begun = len(stream.data) % len(produce_frame(1, bytes(_FRAME_BYTES), acks=0))
    require(
        not stream.whole or missing == 0 or missing == begun < _HEADER_BYTES,
        f"{len(received)} bytes of {len(stream.data)} came out; it ended with {reason}: {error!r}",
    )
    most = MAX_RECORDS_A_CALLBACK * stream.longest + MAX_AHEAD_BYTES
    require(meter.most <= most, f"one callback took in {meter.most} bytes, of records of {stream.longest}")


async def _send(end: socket.socket, segments: Sequence[bytes], meter: _Meter) -> None:
    loop = asyncio.get_running_loop()
    try:
        for segment in segments:
            view = memoryview(segment)
            while view:
                try:
                    sent = end.send(view)
                except BlockingIOError:
                    await asyncio.sleep(0)
                    continue
                meter.sent += sent
                view = view[sent:]
            await asyncio.sleep(0)
        end.shutdown(socket.SHUT_WR)
        while await loop.sock_recv(end, 65_536):
            continue
    except OSError:  # the relay has refused the stream
        return


async def _receive_all(end: socket.socket, into: bytearray) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await loop.sock_recv(end, 65_536):
            into += data
        end.shutdown(socket.SHUT_WR)
    except ConnectionError:
        return


def _seeds() -> list[bytes]:
    return [
        bytes((_Do.SMALL, 200, _Do.LARGE, 255, _Do.TINY_ONES, 99, _Do.CLOSE, 0)),
        bytes(
            (
                _Do.UPDATE,
                0,
                _Do.SMALL,
                9,
                _Do.UPDATE_REQUESTED,
                0,
                _Do.SMALL,
                200,
                _Do.UPDATE_IN_PIECES,
                1,
                _Do.SMALL,
                3,
            )
        ),
        bytes((_Do.SMALL, 5, _Do.UPDATES, 255)),
        bytes((_Do.LARGE, 255) * 60),
        bytes((_Do.TINY_ONES, 255) * 100),
        bytes((_Do.PIECES, 1, _Do.LARGE, 40, _Do.EMPTY_ONES, 3, _Do.PADDED, 250)),
        *(
            bytes((_Do.SMALL, 40, broken, argument, _Do.SMALL, 40))
            for broken in range(_Do.WARNING, len(_Do))
            for argument in (0, 3, 90)
        ),
    ]


def _reshape(data: bytes, random: Random) -> bytes:
    """Change instructions, not halves of them."""
    script = [data[at : at + 2] for at in range(0, len(data), 2)] or [b"\0\0"]
    for _ in range(1 + int(random.random() * 4)):
        at = int(random.random() * len(script))
        instruction = bytes((random.randrange(len(_Do)), random.randrange(256)))
        choice = random.random()
        if choice < 0.4:
            script.insert(at, instruction)
        elif choice < 0.7:
            script[at] = instruction
        elif choice < 0.8:
            script[at:at] = [script[at]] * (1 << int(random.random() * 5))
        elif len(script) > 1:
            del script[at]
    return b"".join(script)


TARGET = Target(
    name="tls",
    run=_run,
    seeds=_seeds,
    reshape=_reshape,
    max_bytes=256,
    max_memory=64 << 20,
    brief=150,
)
