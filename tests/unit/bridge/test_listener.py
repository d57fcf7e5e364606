"""The listener for bridges, on real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from receiver.bridge import frames, listener, tokens
from receiver.bridge.frames import BridgedPush, FrameType, Hello, Result
from receiver.bridge.listener import BridgeListener, BridgeListenerError
from receiver.bridge.taken import Done, TakenPushes
from receiver.metrics.bridge_metrics import BridgeMetrics
from receiver.settings.bridge import BridgeSettings
from receiver.supervisor.socket_file import bind_file
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.ports import LOOPBACK
from tests.unit.bridge import bridge_frames
from tests.unit.bridge.support import HELLO, MAX_PUSH_BYTES, TOKEN, push
from tests.unit.gateway.support import eventually, on_loop


class Receiver:
    """A listener at a free port, whose pushes the test decides."""

    def __init__(self, folder: Path, *, answers: bool = True, **settings: Any) -> None:
        self.token = folder / "token"
        self.token.write_bytes(TOKEN)
        self.path = settings.pop("path", None)
        listening = socket.create_server((LOOPBACK, 0)) if self.path is None else bind_file(self.path)
        listening.listen()
        self.port = listening.getsockname()[1] if self.path is None else 0
        bind = f"{LOOPBACK}:{self.port}" if self.path is None else f"unix:{self.path}"
        self.metrics = BridgeMetrics()
        self.now = 0.0
        self.taken: list[BridgedPush] = []
        self.waiting: list[Done] = []
        self.answers = answers
        self.bridges: list[Bridge] = []
        self.listener = BridgeListener(
            BridgeSettings.model_validate({"bind": bind, "token": {"file": str(self.token)}, **settings}),
            listening,
            max_push_bytes=MAX_PUSH_BYTES,
            take=self._take,
            taken=TakenPushes(listener.WINDOW, 16),
            metrics=self.metrics,
            clock=lambda: self.now,
        )

    def _take(self, hello: Hello, push: BridgedPush, done: Done) -> None:
        self.taken.append(replace(push, metrics=bytes(push.metrics)))
        if self.answers:
            done(Result.ACCEPTED)
        else:
            self.waiting.append(done)

    def counted(self, name: str, **labels: str) -> float:
        samples = (sample for family in self.metrics.collect() for sample in family.samples)
        name = f"kafka_telemetry_bridge_{name}"
        return sum(
            item.value for item in samples if item.name == name and labels.items() <= item.labels.items()
        )

    def check_times(self) -> None:
        """Do what the timer does."""
        self.listener._check_times()


class Bridge:
    """The bridge's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, receiver: Receiver, tls: ssl.SSLContext | None = None) -> Bridge:
        if receiver.path is not None:
            receiver.bridges.append(cls(*await asyncio.open_unix_connection(receiver.path)))
            return receiver.bridges[-1]
        name = None if tls is None else "localhost"
        streams = await asyncio.open_connection(LOOPBACK, receiver.port, ssl=tls, server_hostname=name)
        receiver.bridges.append(cls(*streams))
        return receiver.bridges[-1]

    @classmethod
    async def join(
        cls, receiver: Receiver, hello: Hello = HELLO, token: bytes = TOKEN, tls: ssl.SSLContext | None = None
    ) -> Bridge:
        bridge = await cls.connect(receiver, tls)
        said = frames.encode_hello(hello)
        bridge.writer.write(frames.frame(said))
        challenge = await bridge.read()
        shown = tokens.proof(token, tokens.BRIDGE, said, challenge)
        bridge.writer.write(frames.frame(bridge_frames.encode_proof(shown)))
        return bridge

    async def read(self) -> bytes:
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))

    async def acknowledged(self) -> list[tuple[int, int]]:
        return bridge_frames.decode_acknowledge(await self.read())

    async def refusal(self) -> str:
        """Return the reason with which the receiver closes."""
        frame = await self.read()
        assert frame[0] == FrameType.REFUSED
        assert await self.reader.read() == b""
        return frames.decode_refused(frame)


def run(folder: Path, test: Callable[[Receiver], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        receiver = Receiver(folder, **settings)
        receiver.listener.start()
        try:
            await test(receiver)
        finally:
            for bridge in receiver.bridges:
                bridge.writer.close()
            await receiver.listener.stop()

    on_loop(main())


def test_a_bridge_joins_pushes_and_leaves(tmp_path: Path) -> None:
    async def test(receiver: Receiver) -> None:
        bridge = await Bridge.join(receiver)
        assert (await bridge.read())[0] == FrameType.WELCOME
        bridge.writer.write(push(1, b"\x0a\x01one") + push(2))
        found: list[tuple[int, int]] = []
        while len(found) < 2:
            found += await bridge.acknowledged()
        assert found == [(1, 0), (2, 0)]
        assert [item.metrics for item in receiver.taken] == [b"\x0a\x01one", b"\x0a\x00"]
        bridge.writer.write(frames.frame(bridge_frames.encode_statistics([5, 4, 3])))
        assert await bridge.acknowledged() == []
        assert receiver.counted("connections", broker="3") == 1
        assert receiver.counted("events_total", broker="3", event="received") == 5
        bridge.writer.close()
        await eventually(lambda: not receiver.listener.connections, "the end")
        assert receiver.counted("connections") == 0

    run(tmp_path, test)


def test_a_bridge_joins_by_a_unix_socket(tmp_path: Path) -> None:
    async def test(receiver: Receiver) -> None:
        refused = await Bridge.join(receiver, token=b"another-token-0123")
        assert "does not have the receiver's token" in await refused.refusal()
        bridge = await Bridge.join(receiver)
        assert (await bridge.read())[0] == FrameType.WELCOME
        bridge.writer.write(push(1))
        assert await bridge.acknowledged() == [(1, Result.ACCEPTED)]
        assert receiver.counted("connections", broker="3") == 1

    run(tmp_path, test, path=tmp_path / "bridge.sock")


def test_what_was_not_acknowledged_is_sent_again_and_counts_once(tmp_path: Path) -> None:
    async def test(receiver: Receiver) -> None:
        first = await Bridge.join(receiver)
        await first.read()
        first.writer.write(push(1))
        await eventually(lambda: len(receiver.waiting) == 1, "the push")
        first.writer.close()
        second = await Bridge.join(receiver)
        await second.read()
        second.writer.write(push(1))
        await eventually(lambda: receiver.counted("pushes_total", result="duplicate") == 1, "the repeat")
        receiver.waiting[0](Result.ACCEPTED)
        assert await second.acknowledged() == [(1, Result.DUPLICATE)]
        assert len(receiver.taken) == 1

    run(tmp_path, test, answers=False)


def test_a_wrong_token_is_refused_and_a_new_one_is_taken(tmp_path: Path) -> None:
    async def test(receiver: Receiver) -> None:
        other = b"another-token-0123456789"
        assert "bridge.token.file" in await (await Bridge.join(receiver, token=other)).refusal()
        assert receiver.counted("refusals_total", reason="token") == 1
        receiver.token.write_bytes(b"too short")
        receiver.now += 10
        assert (await (await Bridge.join(receiver)).read())[0] == FrameType.WELCOME
        receiver.token.write_bytes(TOKEN + b"\n" + other)
        receiver.now += 10
        for token in (TOKEN, other):
            assert (await (await Bridge.join(receiver, token=token)).read())[0] == FrameType.WELCOME

    run(tmp_path, test)


async def _nothing(bridge: Bridge) -> None:
    pass


async def _half_a_frame(bridge: Bridge) -> None:
    await bridge.read()
    bridge.writer.write(push(1)[:-1])


async def _silence(bridge: Bridge) -> None:
    await bridge.read()


@pytest.mark.parametrize(
    ("begin", "talk", "seconds", "reason"),
    [
        (Bridge.connect, _nothing, 10, "no proof of the token within 10 s"),
        (Bridge.join, _silence, 60, "nothing was received for 60 s"),
        (Bridge.join, _half_a_frame, 30, "a frame took more than 30 s"),
    ],
)
def test_who_takes_too_long_is_refused(
    tmp_path: Path,
    begin: Callable[[Receiver], Awaitable[Bridge]],
    talk: Callable[[Bridge], Awaitable[None]],
    seconds: float,
    reason: str,
) -> None:
    async def test(receiver: Receiver) -> None:
        bridge = await begin(receiver)
        await talk(bridge)
        (connection,) = receiver.listener.connections
        if talk is _half_a_frame:
            await eventually(lambda: connection._conversation.waiting_bytes > 0, "the half")
        receiver.now += seconds
        receiver.check_times()
        assert receiver.listener.connections
        receiver.now += 1
        receiver.check_times()
        assert await bridge.refusal() == reason
        assert receiver.counted("refusals_total", reason="timeout") == 1

    run(tmp_path, test)


def test_who_proves_nothing_makes_room_for_who_does(tmp_path: Path) -> None:
    async def test(receiver: Receiver) -> None:
        strangers = [await Bridge.connect(receiver) for _ in range(listener._MAX_UNPROVEN)]
        bridge = await Bridge.join(receiver)
        assert (await bridge.read())[0] == FrameType.WELCOME
        assert "not proven" in await strangers[0].refusal()

    run(tmp_path, test)


def test_bridges_are_accepted_after_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_RETRY_ACCEPT_S", 0.01)

    async def test(receiver: Receiver) -> None:
        def broken() -> None:
            raise LookupError

        with monkeypatch.context() as patched, capture_logs() as log:
            patched.setattr(receiver.listener, "_make_room", broken)
            refused = await Bridge.connect(receiver)
            assert await refused.reader.read() == b""
        assert [line["worker"] for line in log if "worker" in line] == ["bridge-listener"]
        bridge = await Bridge.join(receiver)
        assert (await bridge.read())[0] == FrameType.WELCOME

    run(tmp_path, test)


def test_connections_have_a_bound(tmp_path: Path) -> None:
    async def test(receiver: Receiver) -> None:
        first = await Bridge.join(receiver)
        await first.read()
        second = await Bridge.connect(receiver)
        assert await second.reader.read() == b""
        assert receiver.counted("refusals_total", reason="limit") == 1

    run(tmp_path, test, max_connections=1)


def test_tls(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    certificate = authority.issue().write(tmp_path, "server")
    tls = {"cert_file": str(certificate.chain), "key_file": str(certificate.key)}

    async def test(receiver: Receiver) -> None:
        assert receiver.listener.certificate_ends
        bridge = await Bridge.join(receiver, tls=ssl.create_default_context(cafile=certificate.ca))
        assert (await bridge.read())[0] == FrameType.WELCOME
        plain = await Bridge.connect(receiver)
        plain.writer.write(frames.frame(frames.encode_hello(HELLO)))
        await plain.reader.read()
        plain.writer.close()
        await eventually(lambda: receiver.counted("refusals_total", reason="tls") == 1, "the refusal")

    run(tmp_path, test, tls=tls)


def test_a_listener_without_its_files_is_not_made(tmp_path: Path) -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"token": {"file": "nowhere"}}, "bridge.token.file: nowhere cannot be read: No such file"),
        ({"tls": {"cert_file": "no", "key_file": "no"}}, "bridge.tls.cert_file"),
    ]
    for settings, problem in mistakes:
        with pytest.raises(BridgeListenerError, match=problem):
            Receiver(tmp_path, **settings)


def test_tokens_and_pushes_do_not_cross_a_network_in_clear() -> None:
    with pytest.raises(ValueError, match=r"`bridge\.tls` is required"):
        BridgeSettings.model_validate({"bind": "0.0.0.0:9714", "token": {"file": "token"}})


@pytest.mark.parametrize(
    ("bind", "problem"),
    [
        ("unix:bridge.sock", "an absolute path"),
        ("unix:", "an absolute path"),
        (f"unix:/{'a' * 95}", "at most 95 bytes"),
        ("/run/bridge.sock", "expected host:port"),
    ],
)
def test_another_place_to_listen_is_refused(bind: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        BridgeSettings.model_validate({"bind": bind, "token": {"file": "token"}})


def test_a_unix_socket_takes_no_tls() -> None:
    settings = {"bind": "unix:/run/bridge.sock", "token": {"file": "token"}}
    assert str(BridgeSettings.model_validate(settings).bind) == settings["bind"]
    with pytest.raises(ValueError, match=r"has no effect on unix:/run/bridge\.sock"):
        BridgeSettings.model_validate({**settings, "tls": {"cert_file": "a", "key_file": "b"}})
