"""A real supervisor whose relays and core are small: python -m ... FOLDER [--take-over].

``FOLDER/settings.json`` has the configuration; ``FOLDER/plan.json`` says how a process misbehaves.
Each process writes what happens to it in ``FOLDER/journal``. A client of a listener sends ``who``
or ``core``, and gets the relay's or the core's name and process id.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from receiver.log import configure as configure_log
from receiver.settings.errors import SettingsError
from receiver.settings.model import ReceiverSettings
from receiver.supervisor import times
from receiver.supervisor.channel import ControlChannel, Message, read_file
from receiver.supervisor.setup import CoreSetup, RelaySetup
from receiver.supervisor.supervisor import Supervisor

FOLDER = Path(sys.argv[1])
CORE_ANSWERS_WITHIN_S = 1.0


def plan(key: str, default: Any = None) -> Any:
    return json.loads((FOLDER / "plan.json").read_text()).get(key, default)


def note(process: str, event: str, **fields: Any) -> None:
    line = json.dumps({"process": process, "pid": os.getpid(), "event": event, **fields}) + "\n"
    fd = os.open(FOLDER / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


def settings() -> ReceiverSettings:
    text = (FOLDER / "settings.json").read_text()
    try:
        return ReceiverSettings.model_validate_json(text)
    except ValueError as error:
        raise SettingsError("settings.json", "", str(error)) from None


class Process:
    """What a relay and the core have in common: a poll loop, and the supervisor's messages."""

    def __init__(self, name: str, channel: ControlChannel) -> None:
        self.name = name
        self.channel = channel
        self.poll = select.poll()
        self.readers: dict[int, Callable[[], None]] = {}
        self.status: int | None = None
        self.reload = 0
        self.prepared: tuple[ReceiverSettings, dict[str, socket.socket]] | None = None
        self.watch(channel, self.read_channel)

    def watch(self, end: socket.socket | ControlChannel, read: Callable[[], None]) -> None:
        self.readers[end.fileno()] = read
        self.poll.register(end.fileno(), select.POLLIN)

    def forget(self, end: socket.socket) -> None:
        if end.fileno() >= 0:
            del self.readers[end.fileno()]
            self.poll.unregister(end.fileno())
            end.close()

    def run(self) -> int:
        note(self.name, "started", fds=sorted(int(fd.name) for fd in Path("/proc/self/fd").iterdir()))
        if self.name in plan("fail", {}):
            problem, status = plan("fail")[self.name]
            self.channel.send("failed", problem=problem, status=status)
            return int(status)
        if self.name in plan("crash", ()):
            raise RuntimeError("planned")
        while self.name in plan("slow", ()):
            time.sleep(0.01)
        self.channel.send("ready")
        while self.status is None:
            for fd, _ in self.poll.poll(self.timeout_ms()):
                if fd in self.readers:
                    self.readers[fd]()
            self.turn()
        note(self.name, "ended")
        return self.status

    def timeout_ms(self) -> int:
        return 20

    def turn(self) -> None:
        return

    def read_channel(self) -> None:
        while self.status is None and (message := self.channel.receive()) is not None:
            if message.type not in {"ping", "drain"}:
                note(self.name, message.type, **message.fields)
            match message.type:
                case "ping":
                    self.channel.send("pong")
                case "configure":
                    self.prepare(message)
                case "commit" if self.prepared is not None and self.name not in plan("never_apply", ()):
                    self.apply(*self.prepared)
                    self.prepared = None
                    self.channel.send("applied", reload=self.reload)
                case "abort":
                    self.prepared = None
                case _:
                    self.handle(message)

    def prepare(self, message: Message) -> None:
        text, *fds = message.fds
        self.reload = message.fields["reload"]
        fresh = ReceiverSettings.model_validate_json(read_file(text), strict=True)
        names = message.fields.get("names", ["rest"])
        sockets = {name: socket.socket(fileno=fd) for name, fd in zip(names, fds, strict=True)}
        while self.name in plan("think", ()):
            time.sleep(0.01)
        if self.name in plan("refuse", {}):
            self.channel.send("refused", reload=self.reload, problem=plan("refuse")[self.name])
        elif plan("refuse_broker", {}).get(self.name) == fresh.broker.id:
            self.channel.send("refused", reload=self.reload, problem=f"broker {fresh.broker.id}")
        else:
            self.prepared = fresh, sockets
            self.channel.send("prepared", reload=self.reload)

    def apply(self, fresh: ReceiverSettings, sockets: Mapping[str, socket.socket]) -> None:
        raise NotImplementedError

    def handle(self, message: Message) -> None:
        raise NotImplementedError


class Relay(Process):
    def __init__(self, channel: ControlChannel, setup: RelaySetup) -> None:
        super().__init__(f"relay-{setup.slot}", channel)
        self.setup = setup
        self.broker = setup.settings.broker.id
        self.link: socket.socket | None = setup.link
        self.listening: list[socket.socket] = []
        self.open: set[socket.socket] = set()
        self.close_at: float | None = None
        for listening in setup.sockets.values():
            self.listen(listening)

    def listen(self, listening: socket.socket) -> None:
        self.listening.append(listening)
        self.watch(listening, lambda: self.accept(listening))

    def accept(self, listening: socket.socket) -> None:
        try:
            client, _ = listening.accept()
        except BlockingIOError:  # another relay was faster
            return
        self.open.add(client)
        self.watch(client, lambda: self.serve(client))

    def serve(self, client: socket.socket) -> None:
        question = client.recv(100)
        if not question:
            self.open.discard(client)
            self.forget(client)
        elif question == b"who\n":
            answer = {
                "process": self.name,
                "pid": os.getpid(),
                "id": self.setup.relay_id,
                "broker": self.broker,
            }
            client.sendall(json.dumps(answer).encode() + b"\n")
        else:
            client.sendall(self.ask_core() + b"\n")

    def ask_core(self) -> bytes:
        if self.link is not None:
            try:
                self.link.settimeout(CORE_ANSWERS_WITHIN_S)
                self.link.sendall(b"?")
                if answer := self.link.recv(100):
                    return answer
            except OSError:
                pass
            self.link.close()
            self.link = None
        self.channel.send("need_link")
        return b"null"

    def handle(self, message: Message) -> None:
        if message.type == "link":
            if self.link is not None:
                self.link.close()
            self.link = socket.socket(fileno=message.fds[0])
        elif message.type == "drain":
            for listening in self.listening:
                self.forget(listening)
            self.listening.clear()
            note(self.name, "drain", **message.fields)  # it takes no more clients
            if self.name not in plan("never_drain", ()):
                self.close_at = time.monotonic() + message.fields["after_s"]

    def turn(self) -> None:
        if self.close_at is not None and (not self.open or time.monotonic() >= self.close_at):
            self.channel.send("drained")
            self.status = 0

    def apply(self, fresh: ReceiverSettings, sockets: Mapping[str, socket.socket]) -> None:
        self.broker = fresh.broker.id
        for listening in self.listening:
            self.forget(listening)
        self.listening.clear()
        for listening in sockets.values():
            self.listen(listening)


class Core(Process):
    def __init__(self, channel: ControlChannel, setup: CoreSetup) -> None:
        super().__init__("core", channel)
        self.setup = setup
        self.broker = setup.settings.broker.id
        self.rest = setup.rest
        self.links: list[socket.socket] = []
        self.lingers = False
        for link in setup.links.values():
            self.attach(link)
        self.watch(self.rest, self.answer_rest)

    def attach(self, link: socket.socket) -> None:
        self.links.append(link)
        self.watch(link, lambda: self.answer(link))

    def who(self) -> bytes:
        return json.dumps({"process": "core", "pid": os.getpid(), "broker": self.broker}).encode()

    def answer(self, link: socket.socket) -> None:
        try:
            if link.recv(1):
                link.sendall(self.who())
                return
        except OSError:  # the relay has given the link up
            pass
        self.forget(link)

    def answer_rest(self) -> None:
        client, _ = self.rest.accept()
        with client:
            client.sendall(self.who())

    def handle(self, message: Message) -> None:
        if message.type == "link":
            self.attach(socket.socket(fileno=message.fds[0]))
        elif message.type == "stop" and "core" not in plan("never_stop", ()):
            for link in self.links:
                self.forget(link)
            self.lingers = True

    def turn(self) -> None:
        if self.lingers and "core" not in plan("linger", ()):  # it exports what is queued
            self.status = 0

    def apply(self, fresh: ReceiverSettings, sockets: Mapping[str, socket.socket]) -> None:
        self.broker = fresh.broker.id
        self.forget(self.rest)
        self.rest = sockets["rest"]
        self.watch(self.rest, self.answer_rest)


def main() -> int:
    for name, value in plan("constants", {}).items():
        setattr(times, name, value)
    configure_log(settings().log)
    gc.collect()
    gc.freeze()
    supervisor = Supervisor(
        settings(),
        load=settings,
        sourced=lambda error: error,
        run_core=lambda channel, setup: Core(channel, setup).run(),
        run_relay=lambda channel, setup: Relay(channel, setup).run(),
        take_over="--take-over" in sys.argv,
    )
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
