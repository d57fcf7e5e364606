"""SIGHUP: all processes take the new configuration, or none does."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.ports import LOOPBACK, free_port
from tests.unit.supervisor.support import Client, Program, kill, listener, port_of, settings, until
from tests.unit.supervisor.test_supervisor import refused

RELOADED, NOT_RELOADED = "configuration reloaded", "configuration not reloaded"


def changed(config: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """A configuration with another broker id, by which it is recognised, and these sections."""
    return {**config, "broker": {"id": config["broker"]["id"] + 1}, **sections}


def gateway(config: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {**config["gateway"], **keys}


def reload(program: Program, config: dict[str, Any]) -> None:
    program.write(config)
    program.signal(signal.SIGHUP)


def brokers(program: Program) -> set[int]:
    """The broker ids that the core and the relays of some connections have."""
    found = {program.rest()["broker"]}
    processes: set[str] = set()
    while len(processes) < len(program.children()) - 1:
        with Client(program.port) as client:
            answer = client.who()
            processes.add(answer["process"])
            found.add(answer["broker"])
    return found


def test_all_processes_apply_it_and_connections_live(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config).started() as program, Client(program.port) as client:
        children = program.children()
        fresh = changed(config, listeners=[*config["listeners"], listener("NEW")], rest={"bind": other()})
        old_rest = port_of(config["rest"]["bind"])
        reload(program, fresh)
        program.until_logged(RELOADED)
        assert program.children() == children
        assert brokers(program) == {2}
        client.until_core(children["core"])
        with Client(port_of(fresh["listeners"][1]["bind"])) as new:
            assert new.who()["broker"] == 2
        assert refused(old_rest)
        # Without the first listener: its open connection lives.
        reload(program, changed(fresh, listeners=fresh["listeners"][1:]))
        program.until_logged(RELOADED, 2)
        until(lambda: refused(port_of(config["listeners"][0]["bind"])), "a closed listener")
        assert client.who()["broker"] == 3
        # A child that dies now starts with what is in force.
        kill(children["core"])
        program.until_another("core", children["core"])
        until(lambda: program.rest()["broker"] == 3, "REST of the new core")


def other() -> str:
    return f"{LOOPBACK}:{free_port()}"


@pytest.mark.parametrize("name", ["core", pytest.param("relay-2", marks=pytest.mark.full)])
def test_one_process_refuses_for_all(tmp_path: Path, name: str) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config, refuse={name: "listener NEW: no such file"}).started() as program:
        new = listener("NEW")
        reload(program, changed(config, listeners=[*config["listeners"], new], rest={"bind": other()}))
        assert program.until_logged(NOT_RELOADED)["problem"] == "listener NEW: no such file"
        for process in program.children():
            program.until_journal("abort", process)
        program.write(config)
        assert brokers(program) == {1}
        assert refused(port_of(new["bind"]))
        program.plan()
        reload(program, changed(config, listeners=[*config["listeners"], new]))
        program.until_logged(RELOADED)
        assert brokers(program) == {2}


def test_a_configuration_that_is_wrong_reaches_no_process(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config).started() as program:
        reload(program, changed(config, nonsense=1))
        assert "nonsense" in program.until_logged(NOT_RELOADED)["problem"]
        taken = port_of(config["rest"]["bind"])
        clash = {**listener("NEW"), "bind": f"{LOOPBACK}:{taken}"}
        reload(program, changed(config, listeners=[*config["listeners"], clash], rest={"bind": other()}))
        # The port is REST's of the old configuration, which the supervisor may use again.
        program.until_logged(RELOADED)
        assert program.journal("abort") == []


def test_an_address_in_use_is_refused(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config).started() as program:
        bind = f"localhost:{port_of(config['rest']['bind'])}"
        reload(program, changed(config, listeners=[{**config["listeners"][0], "bind": bind}]))
        problem = program.until_logged(NOT_RELOADED)["problem"]
        assert problem == f"listener CLIENT: {bind}: cannot listen there: Address already in use"
        assert program.journal("configure") == []


@pytest.mark.full
def test_the_number_of_relays(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config).started() as program:
        children = program.children()
        reload(program, changed(config, gateway=gateway(config, relays=3)))
        until(lambda: "relay-3" in program.children(), "a third relay")
        until(lambda: 3 in {item["relays"] for item in program.logged(RELOADED)}, "the reload")
        assert brokers(program) == {2}
        client = Client(program.port)
        while client.who()["process"] != "relay-2":
            client.socket.close()
            client = Client(program.port)
        reload(program, changed(config, gateway=gateway(config, relays=1)))
        program.until_journal("ended", "relay-3")
        drain = program.until_journal("drain", "relay-2")
        assert (drain["after_s"], drain["timeout_s"]) == (30, 30)
        # It keeps its connection, with a link to the core, even to a new core.
        client.until_core(children["core"])
        kill(children["core"])
        client.until_core(program.until_another("core", children["core"]))
        client.socket.close()
        until(lambda: set(program.children()) == {"core", "relay-1"}, "the end of relay-2")
        assert program.journal("ended", "relay-2")
        assert program.logged("a relay died, its connections are lost") == []


def test_a_retired_relay_that_does_not_end_is_killed(tmp_path: Path) -> None:
    config = settings(tmp_path, drain={"timeout_s": 0})
    plan = {"never_drain": ["relay-2"], "constants": {"GRACE_S": 0.2}}
    with Program(tmp_path, config, **plan).started() as program:
        reload(program, changed(config, gateway=gateway(config, relays=1)))
        killed = program.until_logged("a process did not end in time, it is killed")
        assert killed["process"] == "relay-2"
        until(lambda: set(program.children()) == {"core", "relay-1"}, "its end")


@pytest.mark.full
def test_a_second_signal_during_a_reload_is_not_lost(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config, think=["relay-1"]).started() as program:
        second = changed(config)
        reload(program, second)
        program.until_journal("configure", "relay-1")
        reload(program, changed(second))
        program.plan()
        program.until_logged(RELOADED, 2)
        assert brokers(program) == {3}


def test_a_late_answer_does_not_count_for_the_next_reload(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config, think=["relay-1"], refuse={"core": "no"}).started() as program:
        second = changed(config)
        reload(program, second)
        program.until_logged(NOT_RELOADED)
        # relay-1 still prepares the first configuration. Then it refuses the second.
        program.plan(think=["relay-1"])
        reload(program, changed(second))
        program.until_journal("configure", "relay-2", 2)
        program.plan(refuse_broker={"relay-1": 3})
        assert program.until_logged(NOT_RELOADED, 2)["problem"] == "broker 3"
        assert program.logged(RELOADED) == []
        program.plan()
        program.signal(signal.SIGHUP)
        program.until_logged(RELOADED)
        assert brokers(program) == {3}


@pytest.mark.full
def test_a_process_that_dies_while_it_prepares(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config, think=["relay-1"]).started() as program:
        relay = program.children()["relay-1"]
        reload(program, changed(config))
        program.until_journal("configure", "relay-1")
        kill(relay)
        program.until_another("relay-1", relay)
        program.until_logged(RELOADED)
        until(lambda: brokers(program) == {2}, "the new configuration in the new relay")


def test_a_reload_waits_for_a_process_that_starts(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config).started() as program:
        program.plan(slow=["relay-1"])
        kill(program.children()["relay-1"])
        program.until_journal("started", "relay-1", 2)
        reload(program, changed(config))
        program.plan()
        program.until_logged(RELOADED)
        assert brokers(program) == {2}
        assert program.journal("configure", "relay-1")


@pytest.mark.full
def test_a_reload_before_the_start_is_complete(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config, slow=["core"]) as program:
        program.until_journal("started", "core")
        reload(program, changed(config))
        program.plan()
        program.until_logged(RELOADED)
        assert brokers(program) == {2}


def test_a_core_that_cannot_start_gets_the_next_configuration(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config).started() as program:
        program.plan(fail={"core": ["subscriptions.db is broken", 1]})
        kill(program.children()["core"])
        program.until_journal("started", "core", 3)
        reload(program, changed(config))
        program.until_logged(RELOADED)
        program.plan()
        until(lambda: "core" in program.children(), "a core")
        until(lambda: brokers(program) == {2}, "the new configuration")


def test_processes_that_never_answer_end_the_reload(tmp_path: Path) -> None:
    config = settings(tmp_path)
    plan = {"constants": {"RELOAD_WITHIN_S": 1.0}}
    with Program(tmp_path, config, think=["core"], **plan).started() as program:
        reload(program, changed(config))
        assert program.until_logged(NOT_RELOADED)["problem"] == "no answer within 1 s from core"
        program.plan(never_apply=["relay-1"])
        program.signal(signal.SIGHUP)
        late = program.until_logged("configuration reloaded, but not by all processes")
        assert late["problem"] == "no answer within 1 s from relay-1"


@pytest.mark.full
def test_a_stop_during_a_reload(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config, think=["relay-1"]).started() as program:
        reload(program, changed(config))
        program.until_journal("configure", "relay-1")
        program.signal(signal.SIGTERM)
        program.until_journal("draining", "core")
        program.plan()
        assert program.wait() == 0
        assert program.journal("commit") == []


@pytest.mark.full
def test_the_control_socket_moves(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with Program(tmp_path, config).started() as program:
        until((tmp_path / "control").is_socket, "the control socket")
        moved = changed(config, gateway=gateway(config, control=str(tmp_path / "moved")))
        reload(program, moved)
        program.until_logged(RELOADED)
        assert (tmp_path / "moved").is_socket()
        assert not (tmp_path / "control").exists()
        nowhere = str(tmp_path / "no" / "folder")
        reload(program, changed(moved, gateway=gateway(config, control=nowhere)))
        assert nowhere in program.until_logged(NOT_RELOADED)["problem"]
        program.plan(refuse={"core": "no"})
        reload(program, changed(moved, gateway=gateway(config, control=str(tmp_path / "third"))))
        program.until_logged(NOT_RELOADED, 2)
        assert not (tmp_path / "third").exists()
        assert (tmp_path / "moved").is_socket()
