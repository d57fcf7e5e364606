"""A new version takes over from a running one. Both are real processes."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from receiver.supervisor.channel import ControlChannel, Message
from receiver.supervisor.takeover import PROTOCOL_VERSION, TakeOverError, predecessor
from receiver.supervisor.takeover.control_socket import ControlSocket
from receiver.supervisor.takeover.predecessor import Predecessor
from tests.unit.supervisor.support import (
    TIMEOUT_S,
    Client,
    Program,
    alive,
    kill,
    listener,
    port_of,
    settings,
    until,
)
from tests.unit.supervisor.test_supervisor import on_each_relay, refused

FAILED = "the new version has not taken over, this one goes on"


def successor(tmp_path: Path, config: dict[str, Any], **plan: Any) -> Program:
    return Program(tmp_path / "new", {**config, "broker": {"id": 2}}, "--take-over", **plan)


def socket_exists(config: dict[str, Any]) -> bool:
    return Path(config["gateway"]["control"]).is_socket()


def test_open_connections_live_and_new_ones_reach_the_new_version(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path / "old", config).started() as old, contextlib.ExitStack() as opened:
        clients = on_each_relay(old, opened)
        until(lambda: socket_exists(config), "the control socket")
        with successor(tmp_path, config).started() as new:
            old.until_logged("a new version has taken over, open connections are kept")
            new_core = new.children()["core"]
            for client in clients.values():
                assert client.who()["broker"] == 1
                client.until_core(new_core)
            until(lambda: new.rest()["broker"] == 2, "REST of the new version")
            # Until then the relays of both versions accept clients.
            old.until_journal("drain", "relay-1")
            old.until_journal("drain", "relay-2")
            with contextlib.ExitStack() as later:
                for name, client in on_each_relay(new, later).items():
                    assert client.who()["pid"] == new.children()[name]
            drains = old.journal("drain")
            assert [(drain["after_s"], drain["timeout_s"]) for drain in drains] == [(30, 30)] * 2
            assert set(old.children()) == {"relay-1", "relay-2"}
            # A new core of the new version reaches the old relays too.
            kill(new_core)
            new_core = new.until_another("core", new_core)
            for client in clients.values():
                client.until_core(new_core)
            opened.close()
            assert old.wait() == 0
            assert old.logged("a relay died, its connections are lost") == []
            new.until_logged("the receiver that was taken over has ended")
            assert socket_exists(config)
            # And so on.
            with Program(tmp_path / "third", config, "--take-over").started() as third:
                assert new.wait() == 0
                assert set(third.children()) == {"core", "relay-1", "relay-2"}
                third.signal(signal.SIGTERM)
                assert third.wait() == 0
            assert not socket_exists(config)


@pytest.mark.full
def test_no_connection_is_refused_while_a_version_takes_over(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path / "old", config).started() as old:
        until(lambda: socket_exists(config), "the control socket")
        seen: set[int] = set()
        with successor(tmp_path, config) as new:
            for _ in range(100_000):
                with Client(old.port) as client:
                    seen.add(client.who()["broker"])
                if not old.runs:
                    break
            assert old.wait() == 0
            with Client(new.port) as client:
                assert client.who()["broker"] == 2
        # On a busy machine the old version may end before the loop meets the new one.
        assert seen | {2} == {1, 2}


@pytest.mark.full
def test_listeners_may_differ(tmp_path: Path) -> None:
    config = settings(tmp_path)
    kept, removed, added = config["listeners"][0], listener("REMOVED"), listener("ADDED")
    before = {**config, "listeners": [kept, removed]}
    with Program(tmp_path / "old", before).started() as old:
        until(lambda: socket_exists(config), "the control socket")
        with successor(tmp_path, {**config, "listeners": [kept, added]}).started():
            assert old.wait() == 0
            for item in (kept, added):
                with Client(port_of(item["bind"])) as client:
                    assert client.who()["broker"] == 2
            assert refused(port_of(removed["bind"]))


@pytest.mark.parametrize("name", ["core", pytest.param("relay-2", marks=pytest.mark.full)])
def test_the_old_version_goes_on_if_the_new_one_fails(tmp_path: Path, name: str) -> None:
    config = settings(tmp_path)
    with Program(tmp_path / "old", config).started() as old, Client(old.port) as client:
        until(lambda: socket_exists(config), "the control socket")
        relays = {key: pid for key, pid in old.children().items() if key != "core"}
        for round_ in range(1, 3):
            core = old.children()["core"]
            with successor(tmp_path, config, fail={name: ["broken", 2]}) as new:
                assert new.wait() == 2
                assert new.until_logged("cannot start")["problem"] == "broken"
            assert old.until_logged(FAILED, round_)["problem"] == "the new version failed: broken"
            client.until_core(old.until_another("core", core))
            assert {key: pid for key, pid in old.children().items() if key != "core"} == relays
        assert old.logged("the core died, telemetry is throttled until it is back") == []
        with successor(tmp_path, config).started():
            client.socket.close()
            assert old.wait() == 0


def test_an_address_that_the_new_version_cannot_bind_disturbs_nothing(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path / "old", config).started() as old:
        until(lambda: socket_exists(config), "the control socket")
        children = old.children()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            used = {**listener("NEW"), "bind": f"127.0.0.1:{taken.getsockname()[1]}"}
            with successor(tmp_path, {**config, "listeners": [*config["listeners"], used]}) as new:
                assert new.wait() == 1
                problem = new.until_logged("cannot start")["problem"]
                assert "listener NEW" in problem
        assert old.until_logged(FAILED)["problem"] == f"the new version failed: {problem}"
        assert old.children() == children


@pytest.mark.full
def test_the_new_version_is_killed_before_it_accepts(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path / "old", config).started() as old, Client(old.port) as client:
        until(lambda: socket_exists(config), "the control socket")
        core = old.children()["core"]
        with successor(tmp_path, config, slow=["core"]) as new:
            new.until_journal("started", "core")
            assert client.core() is None
            assert not alive(core)
            # A relay that dies meanwhile is started again.
            relay = old.children()["relay-1"]
            kill(relay)
            old.until_another("relay-1", relay)
            kill(new.pid)
        with Client(old.port) as another:
            another.until_core(old.until_another("core", core))


@pytest.mark.full
def test_a_relay_that_started_during_the_take_over_is_linked(tmp_path: Path) -> None:
    config = settings(tmp_path, relays=1)
    with Program(tmp_path / "old", config).started() as old:
        until(lambda: socket_exists(config), "the control socket")
        with successor(tmp_path, config, slow=["core"]) as new:
            new.until_journal("started", "core")
            relay = old.children()["relay-1"]
            kill(relay)
            old.until_another("relay-1", relay)
            with Client(old.port) as client:
                assert client.core() is None
                new.plan()
                new.started()
                client.until_core(new.children()["core"])
                assert client.who()["broker"] == 1


def test_a_relay_that_asks_for_a_link_while_the_old_core_ends(tmp_path: Path) -> None:
    config = settings(tmp_path, relays=1)
    with Program(tmp_path / "old", config, linger=["core"]).started() as old, Client(old.port) as client:
        until(lambda: socket_exists(config), "the control socket")
        with successor(tmp_path, config) as new:
            old.until_journal("stop", "core")
            assert client.core() is None
            assert client.core() is None
            old.plan()
            new.started()
            client.until_core(new.children()["core"])
            assert client.who()["broker"] == 1


@pytest.mark.full
def test_the_old_version_is_stopped_or_killed_meanwhile(tmp_path: Path) -> None:
    config = settings(tmp_path)
    for number, status in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        with Program(tmp_path / f"old-{status}", config).started() as old:
            until(lambda: socket_exists(config), "the control socket")
            with successor(tmp_path, config, slow=["core"]) as new:
                new.until_journal("started", "core")
                old.signal(number)
                assert old.wait() == status
                new.plan()
                new.started()
                with Client(new.port) as client:
                    client.until_core(new.children()["core"])
        (tmp_path / "new" / "log").unlink()
        (tmp_path / "new" / "journal").unlink()
        (tmp_path / "control").unlink(missing_ok=True)


@pytest.mark.full
def test_a_stop_while_the_old_core_ends(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path / "old", config, never_stop=["core"]).started() as old:
        until(lambda: socket_exists(config), "the control socket")
        with successor(tmp_path, config):
            old.until_journal("stop", "core")
            old.signal(signal.SIGTERM)
            old.until_journal("ended", "relay-2")
            old.until_journal("ended", "relay-1")
            kill(old.children()["core"])
            assert old.wait() == 0


@pytest.mark.full
def test_the_old_version_stops_early_after_it_was_taken_over(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path / "old", config).started() as old, Client(old.port) as client:
        until(lambda: socket_exists(config), "the control socket")
        with successor(tmp_path, config).started():
            old.until_journal("drain", "relay-1")
            assert client.who()["broker"] == 1
            old.signal(signal.SIGHUP)  # it has nothing to reload any more
            old.signal(signal.SIGTERM)
            assert old.wait() == 0
            assert client.ended()
            assert old.logged("configuration reloaded") == []


def test_a_reload_during_a_take_over_that_fails_is_not_lost(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path / "old", config).started() as old:
        until(lambda: socket_exists(config), "the control socket")
        with successor(tmp_path, config, slow=["core"]) as new:
            new.until_journal("started", "core")
            old.write({**config, "broker": {"id": 3}})
            old.signal(signal.SIGHUP)
        old.until_logged("configuration reloaded")
        until(lambda: old.rest()["broker"] == 3, "the new configuration")


@pytest.mark.full
def test_there_is_nothing_to_take_over(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with successor(tmp_path, config) as new:
        assert new.wait() == 1
        problem = new.until_logged("cannot start")["problem"]
        path = config["gateway"]["control"]
        assert problem == (
            f"gateway.control: {path}: no receiver to take over answers there: No such file or directory"
        )
    with successor(tmp_path, {**config, "gateway": {"relays": 1}}) as new:
        assert new.wait() == 1
        assert "gateway.control is not set" in new.until_logged("cannot start", 2)["problem"]


def test_a_second_receiver_with_the_same_control_socket_is_refused(tmp_path: Path) -> None:
    config = settings(tmp_path)
    path = config["gateway"]["control"]
    expected = (
        f"gateway.control: {path}: another receiver runs with this path; give each its own, or start with "
        "--take-over to replace it"
    )
    with Program(tmp_path / "first", config).started() as first:
        until(lambda: socket_exists(config), "the control socket")
        other = {**settings(tmp_path), "gateway": config["gateway"]}
        with Program(tmp_path / "second", other) as second:
            assert second.wait() == 1
            assert second.until_logged("cannot start")["problem"] == expected
        # Nor does it get the path by a reload.
        other["gateway"] = {"relays": 1, "control": str(tmp_path / "another")}
        with Program(tmp_path / "third", other).started() as third:
            third.write({**other, "gateway": config["gateway"]})
            third.signal(signal.SIGHUP)
            assert third.until_logged("configuration not reloaded")["problem"] == expected
        assert first.logged(FAILED) == []
        with successor(tmp_path, config).started():
            first.until_logged("a new version has taken over, open connections are kept")


def speak(path: Path) -> ControlChannel:
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    until(lambda: end.connect_ex(str(path)) == 0, "the control socket to listen")
    return ControlChannel(end)


def answer(channel: ControlChannel) -> Message:
    found: list[Message] = []

    def received() -> bool:
        message = channel.receive()
        if message is not None:
            found.append(message)
        return message is not None

    until(received, "an answer")
    found[0].close()
    return found[0]


@pytest.mark.full
def test_a_stranger_on_the_control_socket_disturbs_nothing(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config).started() as program, Client(program.port) as client:
        path = tmp_path / "control"
        until(path.is_socket, "the control socket")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        core = program.children()["core"]
        with contextlib.closing(speak(path)) as first:
            first.send("links", nothing=1)  # without the field that it must have
            with pytest.raises(EOFError):
                until(lambda: first.receive() is not None, "the end")
        with contextlib.closing(speak(path)) as first:
            first.send("take_over", version=PROTOCOL_VERSION + 1)
            assert "version" in answer(first).fields["problem"]
            with pytest.raises(EOFError):
                until(lambda: first.receive() is not None, "the end")
        for out_of_turn in ("release_core", "accepting"):
            with contextlib.closing(speak(path)) as first:
                first.send(out_of_turn)
                with pytest.raises(EOFError):
                    until(lambda: first.receive() is not None, "the end")
        with contextlib.closing(speak(path)) as first:
            first.send("take_over", version=PROTOCOL_VERSION)
            with contextlib.closing(speak(path)) as second:
                assert answer(second).fields["problem"] == "another version is taking over"
            assert [name for name, _ in answer(first).fields["names"]] == ["CLIENT", "rest api"]
            # While it stays connected and does nothing, a core that dies is started again.
            kill(core)
            core = program.until_another("core", core)
            client.until_core(core)
        assert program.children()["core"] == core


@pytest.mark.full
def test_a_silent_peer_keeps_nobody_waiting(tmp_path: Path) -> None:
    config = settings(tmp_path)
    plan = {"constants": {"TAKE_OVER_WITHIN_S": 0.2}}
    with Program(tmp_path / "old", config, **plan).started() as old:
        path = tmp_path / "control"
        until(path.is_socket, "the control socket")
        with contextlib.closing(speak(path)) as silent:
            old.write({**config, "broker": {"id": 3}})
            old.signal(signal.SIGHUP)
            old.until_logged("configuration reloaded")
            # Its time may end while the reload goes on.
            problems = ("the new version did not say that it takes over", "it is reloading")
            assert answer(silent).fields["problem"].startswith(problems)
        assert old.logged(FAILED) == []
    # It is sent away for the new version, and not for its silence.
    plan = {"constants": {"TAKE_OVER_WITHIN_S": 600.0}}
    with Program(tmp_path / "old", config, **plan).started() as old:
        (tmp_path / "old" / "log").unlink()
        until(path.is_socket, "the control socket")
        with contextlib.closing(speak(path)) as silent, successor(tmp_path, config).started():
            with pytest.raises(EOFError):
                until(lambda: silent.receive() is not None, "the end")
            assert old.wait() == 0


@pytest.mark.full
def test_a_new_version_that_stops_after_it_has_the_sockets(tmp_path: Path) -> None:
    config = settings(tmp_path)
    plan = {"constants": {"RELEASE_WITHIN_S": 0.2}}
    with Program(tmp_path / "old", config, **plan).started() as old:
        path = tmp_path / "control"
        until(path.is_socket, "the control socket")
        core = old.children()["core"]
        with contextlib.closing(speak(path)) as silent:
            silent.send("take_over", version=PROTOCOL_VERSION)
            assert answer(silent).type == "sockets"
            problem = "the new version did not have this one's core end within 0.2 s"
            assert old.until_logged(FAILED)["problem"] == problem
            refused = answer(silent)
            assert (refused.type, refused.fields["problem"]) == ("refused", problem)
            old.signal(signal.SIGHUP)
            old.until_logged("configuration reloaded")
        assert old.children()["core"] == core
        with successor(tmp_path, config).started():
            assert old.wait() == 0


@pytest.mark.full
def test_a_new_version_that_never_accepts_clients_ends_and_the_old_one_goes_on(tmp_path: Path) -> None:
    config = settings(tmp_path)
    plan = {"constants": {"ACCEPT_WITHIN_S": 0.5}}
    with Program(tmp_path / "old", config, **plan).started() as old, Client(old.port) as client:
        until(lambda: socket_exists(config), "the control socket")
        core = old.children()["core"]
        problem = "the new version did not accept clients within 0.5 s"
        with successor(tmp_path, config, slow=["core"]) as new:
            assert old.until_logged(FAILED)["problem"] == problem
            said = new.until_logged("the take-over has failed, this version ends")["problem"]
            assert said.endswith(f"the running receiver goes on: {problem}")
            assert new.wait() == 1
        client.until_core(old.until_another("core", core))
        old.plan()
        with successor(tmp_path, config).started():
            client.socket.close()
            assert old.wait() == 0


#: A new version that asks for the end of the core, and then hangs.
HANGS = """
import socket, sys, time
from receiver.supervisor.channel import ControlChannel
from receiver.supervisor.takeover import PROTOCOL_VERSION
end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
end.connect(sys.argv[1])
channel = ControlChannel(end)
channel.send("take_over", version=PROTOCOL_VERSION)
channel.send("release_core")
while True:
    time.sleep(60)
"""


def test_a_new_version_that_hangs_is_killed(tmp_path: Path) -> None:
    """Its processes may hold what the old version's core needs."""
    config = settings(tmp_path)
    plan = {"constants": {"ACCEPT_WITHIN_S": 0.2, "GRACE_S": 0.2}}
    with Program(tmp_path / "old", config, **plan).started() as old, Client(old.port) as client:
        until(lambda: socket_exists(config), "the control socket")
        core = old.children()["core"]
        hanging = subprocess.Popen([sys.executable, "-c", HANGS, str(tmp_path / "control")])
        try:
            old.until_logged("the new version that has not taken over did not end in time, it is killed")
            assert hanging.wait(TIMEOUT_S) == -signal.SIGKILL
        finally:
            hanging.kill()
            hanging.wait(TIMEOUT_S)
        client.until_core(old.until_another("core", core))


def test_a_running_receiver_that_accepts_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor is suspended, and others wait before this one."""
    monkeypatch.setattr(predecessor, "_CONNECT_WITHIN_S", 0.1)
    path = tmp_path / "control"
    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listening.bind(str(path))
        listening.listen(0)
        while True:
            waiting = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            waiting.setblocking(False)
            if waiting.connect_ex(str(path)):
                break
        with pytest.raises(TakeOverError, match="no receiver to take over answers there"):
            Predecessor(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_is_turned_away() -> None:
    # Not in the run's own folder, whose mode other tests may change meanwhile.
    with tempfile.TemporaryDirectory(prefix="kct-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        with Program(folder, settings(folder)).started() as program:
            path = folder / "control"
            until(path.is_socket, "the control socket")
            path.chmod(0o666)
            connecting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            os.seteuid(65534)
            try:
                connecting.connect(str(path))
            finally:
                os.seteuid(0)
            with contextlib.closing(ControlChannel(connecting)) as channel:
                channel.send("take_over", version=PROTOCOL_VERSION)
                with pytest.raises(EOFError):
                    until(lambda: channel.receive() is not None, "the end")
            assert program.children()


def test_the_control_socket_replaces_a_leftover_and_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "control"
    first = ControlSocket(path)
    second = ControlSocket(path)
    first.close()
    assert path.is_socket()  # it is the second's
    second.close()
    assert not path.exists()
    path.write_text("precious")
    with pytest.raises(TakeOverError, match=r"gateway\.control: .*control: .*another file is there"):
        ControlSocket(path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_the_control_socket_is_seen_only_while_it_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "control"
    before_listening: list[int] = []

    class Observed(socket.socket):
        def listen(self, backlog: int = 0, /) -> None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connecting:
                before_listening.append(connecting.connect_ex(str(path)))
            super().listen(backlog)

    monkeypatch.setattr("receiver.supervisor.takeover.control_socket.socket.socket", Observed)
    with contextlib.closing(ControlSocket(path)), contextlib.closing(ControlSocket(path)):
        assert before_listening == [errno.ENOENT, 0]


@pytest.mark.parametrize(
    ("packet", "problem"),
    [
        (b"nonsense", "sent not a message"),
        (b'{"type": "pong"}', "sent 'pong' in place of 'sockets'"),
        (b'{"type": "refused", "problem": "it is stopping"}', "refused: it is stopping"),
        (b"", "closed the connection"),
    ],
)
def test_a_running_receiver_that_answers_otherwise(tmp_path: Path, packet: bytes, problem: str) -> None:
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen(1)
        pid = os.fork()
        if pid == 0:
            accepted, _ = listening.accept()
            accepted.recv(1000)
            if packet:
                accepted.send(packet)
            os._exit(0)
        try:
            with pytest.raises(TakeOverError, match=f"gateway.control: {path}: .*{problem}"):
                Predecessor(path)
        finally:
            os.waitpid(pid, 0)
