"""Listening sockets: bound once, kept over reloads, closed when nobody needs them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from receiver.settings.model import ReceiverSettings
from receiver.supervisor.sockets import REST, ListeningSockets, SocketError
from tests.testbed.ports import LOOPBACK, free_port

ANY_PORT = f"{LOOPBACK}:0"


def settings(rest: str = ANY_PORT, **listeners: str) -> ReceiverSettings:
    config: dict[str, Any] = {
        "broker": {"id": 1},
        "rest": {"bind": rest},
        "listeners": [
            {"name": name, "bind": bind, "upstream": f"{LOOPBACK}:9092"} for name, bind in listeners.items()
        ],
    }
    return ReceiverSettings.model_validate(config)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def bound(stack: ExitStack, *arguments: Any) -> ListeningSockets:
    sockets = ListeningSockets(*arguments)
    stack.callback(sockets.close)
    return sockets


def address() -> str:
    return f"{LOOPBACK}:{free_port()}"


def accepts(listening: socket.socket) -> bool:
    with socket.socket() as client:
        return client.connect_ex(listening.getsockname()) == 0


@pytest.mark.parametrize(("before", "after"), [("0.0.0.0", LOOPBACK), (LOOPBACK, "0.0.0.0")])
def test_a_listener_moves_to_another_host_with_its_port(stack: ExitStack, before: str, after: str) -> None:
    port = free_port()
    old = bound(stack, settings(CLIENT=f"{before}:{port}"))
    old.listen()
    new = bound(stack, settings(CLIENT=f"{after}:{port}"), old.by_name)
    new.listen()
    for sockets in (old, new):
        assert not sockets["CLIENT"].getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
    new.close_others()
    with socket.create_connection((LOOPBACK, port)):
        new["CLIENT"].setblocking(True)
        new["CLIENT"].accept()[0].close()
    with pytest.raises(SocketError, match="Address already in use"):
        ListeningSockets(settings(CLIENT=f"{before}:{port}"))


def test_a_move_that_is_given_up_leaves_the_port_to_the_old_socket(stack: ExitStack) -> None:
    port = free_port()
    old = bound(stack, settings(CLIENT=f"0.0.0.0:{port}"))
    old.listen()
    ListeningSockets(settings(CLIENT=f"{LOOPBACK}:{port}"), old.by_name).discard()
    assert not old["CLIENT"].getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
    assert accepts(old["CLIENT"])


def test_listeners_accept_once_told_and_rest_at_once(stack: ExitStack) -> None:
    sockets = bound(stack, settings(CLIENT=ANY_PORT, INTERNAL=ANY_PORT))
    assert list(sockets.of_listeners) == ["CLIENT", "INTERNAL"]
    assert [accepts(item) for item in (sockets["CLIENT"], sockets["INTERNAL"], sockets[REST])] == [
        False,
        False,
        True,
    ]
    sockets.listen()
    assert all(accepts(item) for _, _, item in sockets.items())
    assert not any(item.getblocking() or item.get_inheritable() for _, _, item in sockets.items())


def test_an_ipv6_address_and_a_name(stack: ExitStack) -> None:
    sockets = bound(stack, settings(SIX="[::1]:0", NAME="localhost:0"))
    sockets.listen()
    assert sockets["SIX"].family == socket.AF_INET6
    assert accepts(sockets["NAME"])


@pytest.mark.parametrize("owner", ["listener CLIENT", "rest.bind"])
def test_an_address_in_use_is_named_and_nothing_stays_bound(stack: ExitStack, owner: str) -> None:
    taken = stack.enter_context(socket.create_server((LOOPBACK, 0)))
    used, free = f"{LOOPBACK}:{taken.getsockname()[1]}", address()
    wanted = (
        settings(free, OTHER=address(), CLIENT=used)
        if owner == "listener CLIENT"
        else settings(used, CLIENT=free)
    )
    with pytest.raises(SocketError) as error:
        ListeningSockets(wanted)
    assert str(error.value) == f"{owner}: {used}: cannot listen there: Address already in use"
    host, _, port = free.rpartition(":")
    stack.enter_context(socket.create_server((host, int(port))))


def test_a_host_that_is_not_known() -> None:
    with pytest.raises(SocketError, match=r"listener CLIENT: no-such-host.invalid:1: .* not known"):
        ListeningSockets(settings(CLIENT="no-such-host.invalid:1"))


def test_another_process_listens_between_bind_and_listen(stack: ExitStack) -> None:
    bind = address()
    first, second = bound(stack, settings(CLIENT=bind)), bound(stack, settings(CLIENT=bind))
    first.listen()
    with pytest.raises(SocketError, match=f"listener CLIENT: {bind}: cannot listen there"):
        second.listen()


def test_a_reload_keeps_what_did_not_change(stack: ExitStack) -> None:
    rest, kept, moved, removed = (address() for _ in range(4))
    old = bound(stack, settings(rest, KEPT=kept, MOVED=moved, REMOVED=removed))
    old.listen()
    new = bound(stack, settings(rest, KEPT=kept, MOVED=address(), NEW=address()), old.by_name)
    assert new["KEPT"] is old["KEPT"]
    assert new[REST] is old[REST]
    assert new["MOVED"] is not old["MOVED"]
    new.listen()
    new.close_others()
    assert old["MOVED"].fileno() == old["REMOVED"].fileno() == -1
    assert all(accepts(item) for _, _, item in new.items())


def test_a_reload_that_fails_closes_only_its_own(stack: ExitStack) -> None:
    rest, kept = address(), address()
    old = bound(stack, settings(rest, KEPT=kept))
    old.listen()
    new = ListeningSockets(settings(address(), KEPT=kept, NEW=address()), old.by_name)
    new.discard()
    assert new["NEW"].fileno() == new[REST].fileno() == -1
    assert all(accepts(item) for _, _, item in old.items())
    taken = stack.enter_context(socket.create_server((LOOPBACK, 0))).getsockname()[1]
    with pytest.raises(SocketError):
        ListeningSockets(settings(rest, KEPT=kept, NEW=f"{LOOPBACK}:{taken}"), old.by_name)
    assert all(accepts(item) for _, _, item in old.items())


def test_a_renamed_listener_keeps_its_socket(stack: ExitStack) -> None:
    one, other = address(), address()
    old = bound(stack, settings(A=one, B=other))
    new = bound(stack, settings(A=other, C=one), old.by_name)
    assert (new["A"], new["C"]) == (old["B"], old["A"])


def test_listeners_with_ports_of_the_systems_choice_are_not_confused(stack: ExitStack) -> None:
    old = bound(stack, settings(A=ANY_PORT, B=ANY_PORT))
    new = bound(stack, settings(A=ANY_PORT, B=ANY_PORT, C=ANY_PORT), old.by_name)
    assert (new["A"], new["B"], new[REST]) == (old["A"], old["B"], old[REST])
    assert len({item.getsockname()[1] for _, _, item in new.items()}) == 4
