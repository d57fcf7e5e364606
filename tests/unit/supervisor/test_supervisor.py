"""A supervisor with small children: start, deaths, links, stop. All processes are real."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

import pytest

from tests.testbed.ports import LOOPBACK
from tests.unit.supervisor.support import TIMEOUT_S, Client, Program, alive, kill, settings, until

CHILDREN = {"core", "relay-1", "relay-2"}


def on_each_relay(program: Program, opened: contextlib.ExitStack, count: int = 2) -> dict[str, Client]:
    """A connection to each relay, by the name of its process."""
    found: dict[str, Client] = {}
    while len(found) < count:
        client = opened.enter_context(Client(program.port))
        found.setdefault(client.who()["process"], client)
    return found


def test_all_processes_run_and_stop(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path)).started() as program, contextlib.ExitStack() as opened:
        children = program.children()
        assert set(children) == CHILDREN
        clients = on_each_relay(program, opened)
        for name, client in clients.items():
            assert client.who()["pid"] == children[name]
            assert client.who()["id"].startswith(f"{program.pid}-")
            client.until_core(children["core"])
        assert program.rest()["pid"] == children["core"]
        assert [item["event"] for item in program.logged("started")] == ["started"]
        opened.close()
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
        program.until_logged("stopped")
        drains = program.journal("drain")
        assert [(drain["after_s"], drain["timeout_s"]) for drain in drains] == [(0.0, 30.0)] * 2
        assert program.journal("draining", "core")
        (stop,) = program.journal("stop", "core")
        assert 0 < stop["timeout_s"] <= 30
        # The core ends last, so that the relays' last calls are answered.
        assert [item["process"] for item in program.journal("ended")][-1] == "core"


def test_children_inherit_only_what_they_are_given(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path)).started() as program:
        for name, given in {"core": 2, "relay-1": 4, "relay-2": 4}.items():
            # 0 to 2, what it is given (channel, listening socket, link,
            # traffic), and the listing itself.
            (started,) = program.journal("started", name)
            assert len(started["fds"]) == 3 + given + 1, name


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(number, marks=pytest.mark.full) for number in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_children_ignore_the_signals_of_a_terminal(tmp_path: Path, number: signal.Signals) -> None:
    with Program(tmp_path, settings(tmp_path)).started() as program, Client(program.port) as client:
        children = program.children()
        for pid in children.values():
            kill(pid, number)
        client.until_core(children["core"])
        assert program.children() == children


def test_a_dead_relay_takes_only_its_own_connections(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path)).started() as program, contextlib.ExitStack() as opened:
        clients = on_each_relay(program, opened)
        children = program.children()
        first = clients["relay-1"].who()["id"]
        kill(children["relay-1"])
        assert clients["relay-1"].ended()
        clients["relay-2"].until_core(children["core"])
        program.until_another("relay-1", children["relay-1"])
        died = program.until_logged("a relay died, its connections are lost")
        assert (died["process"], died["how"], died["restart_in_s"]) == ("relay-1", "killed by SIGKILL", 0.1)
        with contextlib.ExitStack() as again:
            fresh = on_each_relay(program, again)["relay-1"]
            assert fresh.who()["id"] != first
            fresh.until_core(children["core"])
        assert program.children()["core"] == children["core"]


def test_a_dead_core_ends_no_connection_and_is_linked_anew(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path)).started() as program, contextlib.ExitStack() as opened:
        clients = on_each_relay(program, opened)
        before = {name: client.who() for name, client in clients.items()}
        core = program.children()["core"]
        for round_ in range(2):
            kill(core)
            core = program.until_another("core", core)
            assert {name: client.who() for name, client in clients.items()} == before
            for client in clients.values():
                client.until_core(core)
            died = program.until_logged("the core died, telemetry is throttled until it is back", round_ + 1)
            assert died["restart_in_s"] == pytest.approx(0.1 * 2**round_)
        until(lambda: program.rest()["pid"] == core, "REST of the new core")


@pytest.mark.full
def test_core_and_relays_die_together(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path)).started() as program, contextlib.ExitStack() as opened:
        for pid in program.children().values():
            kill(pid, signal.SIGSTOP)
        old = program.children()
        for pid in old.values():
            kill(pid)
        new = {name: program.until_another(name, pid) for name, pid in old.items()}
        for client in on_each_relay(program, opened).values():
            client.until_core(new["core"])


@pytest.mark.full
def test_a_relay_gets_a_new_link_when_it_needs_one(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path, relays=1)).started() as program, Client(program.port) as client:
        core = program.children()["core"]
        client.until_core(core)
        kill(core, signal.SIGSTOP)
        assert client.core() is None  # the relay gives the link up, because the core does not answer
        kill(core, signal.SIGCONT)
        client.until_core(core)
        assert program.journal("link", "relay-1")


def test_a_process_that_does_not_answer_is_replaced(tmp_path: Path) -> None:
    plan = {"constants": {"PING_EVERY_S": 1.0}}
    with Program(tmp_path, settings(tmp_path, relays=1), **plan).started() as program:
        children = program.children()
        kill(children["core"], signal.SIGSTOP)
        new = program.until_another("core", children["core"])
        hung = program.until_logged("a process does not answer, it is killed")
        assert (hung["process"], hung["pid"]) == ("core", children["core"])
        with Client(program.port) as client:
            client.until_core(new)


@pytest.mark.full
def test_a_process_that_never_becomes_ready_is_replaced(tmp_path: Path) -> None:
    plan = {"constants": {"PING_EVERY_S": 0.1}}
    with Program(tmp_path, settings(tmp_path, relays=1), **plan).started() as program:
        program.plan(**plan, slow=["relay-1"])
        kill(program.children()["relay-1"])
        hung = program.until_logged("a process does not become ready, it is killed")
        assert hung["process"] == "relay-1"
        program.plan(**plan)
        until(lambda: len(program.journal("started", "relay-1")) >= 3, "another relay")
        with Client(program.port) as client:
            assert client.who()["process"] == "relay-1"


@pytest.mark.full
def test_a_start_whose_core_never_becomes_ready_ends(tmp_path: Path) -> None:
    plan = {"constants": {"PING_EVERY_S": 0.1}, "slow": ["core"]}
    with Program(tmp_path, settings(tmp_path), **plan) as program:
        assert program.wait() == 1
        assert program.until_logged("cannot start")["problem"] == "the process core ended: killed by SIGKILL"


@pytest.mark.parametrize("name", ["core", pytest.param("relay-2", marks=pytest.mark.full)])
def test_a_child_that_cannot_start_ends_the_start(tmp_path: Path, name: str) -> None:
    plan = {"fail": {name: ["listener CLIENT: its key is gone", 2]}}
    with Program(tmp_path, settings(tmp_path), **plan) as program:
        assert program.wait() == 2
        (line,) = program.logged("cannot start")
        assert line["problem"] == "listener CLIENT: its key is gone"
        assert program.logged("started") == []


@pytest.mark.full
def test_a_child_that_crashes_at_its_start(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path), crash=["core"]) as program:
        assert program.wait() == 1
        assert "RuntimeError: planned" in program.until_logged("the process ended with an error")["exception"]
        assert program.until_logged("cannot start")["problem"] == "the process core ended: exit status 1"


def test_an_address_in_use_ends_the_start(tmp_path: Path) -> None:
    config = settings(tmp_path)
    host, _, port = config["listeners"][0]["bind"].rpartition(":")
    with socket.create_server((host, int(port))), Program(tmp_path, config) as program:
        assert program.wait() == 1
        problem = program.until_logged("cannot start")["problem"]
        assert problem == f"listener CLIENT: {host}:{port}: cannot listen there: Address already in use"
        assert program.journal("started") == []


def test_no_client_is_accepted_before_the_core_is_ready(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path), slow=["core"]) as program:
        program.until_journal("started", "core")
        with pytest.raises(ConnectionRefusedError):
            Client(program.port)
        program.plan()
        program.started()
        with Client(program.port) as client:
            assert client.who()


def test_a_stop_before_the_core_is_ready(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path), slow=["core"]) as program:
        program.until_journal("started", "core")
        program.signal(signal.SIGTERM)
        program.until_logged("stopping")
        program.plan()
        assert program.wait() == 0
        assert program.logged("started") == []
        assert program.journal("started", "relay-1") == []


@pytest.mark.full
def test_a_stop_without_a_core(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path)).started() as program:
        program.plan(crash=["core"])
        kill(program.children()["core"])
        program.until_journal("started", "core", 3)
        program.signal(signal.SIGINT)
        assert program.wait() == 0


@pytest.mark.full
def test_relays_keep_open_connections_while_they_drain(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path), never_drain=["relay-1"]).started() as program:
        relay = program.children()["relay-1"]
        with contextlib.ExitStack() as opened:
            clients = on_each_relay(program, opened)
            program.signal(signal.SIGTERM)
            assert clients["relay-2"].ended()
            assert clients["relay-1"].who()["pid"] == relay
            until(lambda: refused(program.port), "refused connections")
            clients["relay-1"].until_core(program.children()["core"])
            for number in (signal.SIGTERM, signal.SIGINT):  # these change nothing
                program.signal(number)
                assert clients["relay-1"].who()["pid"] == relay
            stops = "stopping already, another SIGINT stops at once"
            until(lambda: bool(program.logged(stops)), "the first SIGINT")
            program.signal(signal.SIGINT)
            assert program.wait() == 1
            assert clients["relay-1"].ended()
        assert program.logged("stopped at once by a second SIGINT, what was in flight is lost")


def refused(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(TIMEOUT_S)
        return probe.connect_ex((LOOPBACK, port)) != 0


def test_processes_that_do_not_end_are_killed(tmp_path: Path) -> None:
    config = settings(tmp_path, drain={"timeout_s": 0})
    plan = {"never_drain": ["relay-1", "relay-2"], "never_stop": ["core"], "constants": {"GRACE_S": 0.2}}
    with Program(tmp_path, config, **plan).started() as program:
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
        killed = [item["process"] for item in program.logged("a process did not end in time, it is killed")]
        assert killed == ["relay-1", "relay-2", "core"]


@pytest.mark.full
def test_a_relay_that_dies_while_all_drain_is_not_started_again(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path), never_drain=["relay-1"]).started() as program:
        pid = program.children()["relay-1"]
        program.signal(signal.SIGTERM)
        program.until_journal("drain", "relay-1")
        kill(pid)
        assert program.wait() == 0
        assert len(program.journal("started", "relay-1")) == 1


def test_no_process_outlives_the_supervisor(tmp_path: Path) -> None:
    with Program(tmp_path, settings(tmp_path)).started() as program:
        children = program.children()
        kill(program.pid)
        program.wait()
        until(lambda: not any(map(alive, children.values())), "the end of all processes")


@pytest.mark.full
def test_the_core_runs_at_a_lower_priority(tmp_path: Path) -> None:
    config = settings(tmp_path)
    config["gateway"]["core_nice"] = 7
    with Program(tmp_path, config).started() as program:
        own = os.getpriority(os.PRIO_PROCESS, program.pid)
        nice = {name: os.getpriority(os.PRIO_PROCESS, pid) for name, pid in program.children().items()}
        assert nice == {"core": min(19, own + 7), "relay-1": own, "relay-2": own}
