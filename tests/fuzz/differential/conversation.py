"""Plays a script on one side, and writes down what came back.

It uses plain sockets: asyncio's streams drop what has arrived once a write has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

from tests.fuzz.differential.script import Script
from tests.fuzz.differential.sides import Side
from tests.testbed.ports import LOOPBACK

_WITHIN_S: Final = 40.0
_RESET: Final = struct.pack("ii", 1, 0)
_READ_BYTES: Final = 262_144
#: How long a request of a lockstep waits for the answer before it, which may never come.
_STEP_S: Final = 0.3

#: ``open``: the last request was answered. ``closed``: by the other side, orderly or by a reset,
#: because that depends on unread bytes. ``silent``: nothing came for long. ``left``: the client
#: sent a reset. ``refused``: nobody listens.
End = Literal["open", "closed", "silent", "left", "refused"]


@dataclass(slots=True, kw_only=True)
class Transcript:
    """What came back.

    Attributes:
        side: The side.
        answers: The whole answers without their lengths.
        rest: Bytes behind the last whole answer.
        end: How it ended.
        seconds: How long it took.
    """

    side: Side
    answers: list[bytes] = field(default_factory=list)
    rest: bytes = b""
    end: End = "silent"
    seconds: float = 0.0


async def play(script: Script, side: Side) -> Transcript:
    """Play a script."""
    return await _Player(script, side).play()


class _Player:
    def __init__(self, script: Script, side: Side) -> None:
        self._script = script
        self._side = side
        self._steps = script.steps_for(side.path)
        self._data = [side.fill(template) for template in script.templates(side.path)]
        self._random = Random(f"{script.seed} {script.number} {side.path}")  # no secret
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket()
        self._transcript = Transcript(side=side)
        self._received = bytearray()
        self._arrived = asyncio.Event()

    async def play(self) -> Transcript:
        started = self._loop.time()
        transcript, resets = self._transcript, self._script.ending == "reset"
        with self._socket as connected:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await self._loop.sock_connect(connected, (LOOPBACK, self._side.ports[self._script.listener]))
            except OSError:
                transcript.end = "refused"
                return transcript
            sending = asyncio.create_task(self._send())
            try:
                async with asyncio.timeout(_STEP_S if resets else _WITHIN_S):
                    transcript.end = await self._receive(sending)
            except TimeoutError:
                transcript.end = "left" if resets else "silent"
            finally:
                sending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sending
            if resets:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transcript.seconds = self._loop.time() - started
        transcript.rest = bytes(self._received)
        return transcript

    async def _send(self) -> None:
        try:
            if self._script.lockstep:
                await self._send_in_lockstep()
            else:
                await self._send_pieces(b"".join(self._data))
            if self._script.ending in ("half", "cut"):
                self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return  # the other side has closed, and what it sent before is still read

    async def _send_in_lockstep(self) -> None:
        due = 0
        for step, data in zip(self._steps, self._data, strict=True):
            await self._send_pieces(data)
            due += not step.is_silent
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STEP_S):
                    while len(self._transcript.answers) < due:
                        self._arrived.clear()
                        await self._arrived.wait()

    async def _send_pieces(self, data: bytes) -> None:
        random = self._random
        places = sorted(random.randrange(len(data) + 1) for _ in range(self._script.pieces - 1))
        for begin, end in zip([0, *places], [*places, len(data)], strict=True):
            await self._loop.sock_sendall(self._socket, data[begin:end])
            if end < len(data):
                for _ in range(random.choice((0, 1, 5, 20))):
                    await asyncio.sleep(0)  # other conversations go on

    async def _receive(self, sending: asyncio.Task[None]) -> End:
        last = self._script.steps[-1].correlation_id
        wanted = self._random.randrange(4)
        while True:
            if self._script.ending == "reset" and len(self._transcript.answers) >= wanted:
                await sending
                return "left"
            try:
                chunk = await self._loop.sock_recv(self._socket, _READ_BYTES)
            except OSError:
                return "closed"
            if not chunk:
                return "closed"
            self._received += chunk
            if self._take_answers(last) and self._script.ending == "close":
                return "open"

    def _take_answers(self, last: int) -> bool:
        """Take whole answers; return whether the last request's was among them."""
        received, answers, done = self._received, self._transcript.answers, False
        while len(received) >= 8:
            length, correlation_id = struct.unpack_from(">ii", received)
            if len(received) < 4 + length or length < 4:
                break
            answers.append(bytes(received[4 : 4 + length]))
            del received[: 4 + length]
            done |= correlation_id == last
        self._arrived.set()
        return done
