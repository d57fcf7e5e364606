"""Addresses that the receiver is to bind: free, held, or not to be had."""

from __future__ import annotations

import socket

from receiver.doctor.findings import State
from receiver.doctor.ports import addresses, check_free, check_held
from receiver.host.discovery import load_plugins
from receiver.settings.hostport import HostPort
from receiver.settings.model import ReceiverSettings
from tests.testbed.ports import free_port


def test_a_port_that_is_free_held_or_chosen_by_the_system() -> None:
    port = free_port()
    address = HostPort(host="127.0.0.1", port=port)
    assert check_free("rest.bind", address).seen == "free"
    with socket.create_server(("127.0.0.1", port)):
        for host in ("127.0.0.1", "0.0.0.0", "localhost"):
            held = check_free("rest.bind", HostPort(host=host, port=port))
            assert (held.state, f"sport = :{port}" in held.do) == (State.FAILED, True), host
    assert check_free("rest.bind", address).seen == "free"
    assert check_free("rest.bind", HostPort(host="127.0.0.1", port=0)).state is State.OK


def test_an_address_of_another_machine() -> None:
    finding = check_free("rest.bind", HostPort(host="192.0.2.1", port=free_port()))
    assert (finding.state, "not this machine's" in finding.seen) == (State.FAILED, True)
    unknown = check_free("rest.bind", HostPort(host="no-such-host.invalid", port=1))
    assert (unknown.state, "host of rest.bind" in unknown.do) == (State.FAILED, True)


def test_the_running_receiver_has_other_listeners() -> None:
    listeners = [
        {"name": name, "bind": f"127.0.0.1:{port}", "upstream": "b:9092"}
        for name, port in (("SAME", 19092), ("MOVED", 19093), ("NEW", 19094))
    ]
    settings = ReceiverSettings.model_validate({"listeners": listeners})
    plugins = load_plugins([{"type": "prometheus", "bind": "127.0.0.1:9464"}])
    assert [address for address, _ in addresses(settings, plugins)] == [
        *(f"listeners[{number}].bind" for number in range(3)),
        "rest.bind",
        "plugins[0].bind",
    ]
    running = {"SAME": "127.0.0.1:19092", "MOVED": "127.0.0.1:1"}
    found = check_held(settings, plugins, running)
    assert [item.state for item in found] == [State.OK, State.FAILED, State.FAILED]
    assert [item.seen for item in found[1:]] == [
        "the running receiver binds 127.0.0.1:1",
        "the running receiver has no listener NEW",
    ]
