"""Supervisor, relays and core: what dies, hangs or is reloaded takes nothing else with it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    config,
    get_subscriptions,
    listener,
    push,
    read_get,
    refusal,
)
from tests.testbed.ports import LOOPBACK, listening_on
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker, produce_frame

THROTTLING_QUOTA_EXCEEDED = 89
CORE = "kct-core"


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def error_of(answer: bytes) -> int:
    """The error code of an answer to GetTelemetrySubscriptions or PushTelemetry."""
    return int.from_bytes(answer[9:11], "big", signed=True)


def relays(count: int, **more: Any) -> dict[str, Any]:
    return {"gateway": {"relays": count}, **more}


def on_all_relays(sidecar: GatewaySidecar, opened: contextlib.ExitStack) -> dict[str, Raw]:
    """A connection on each relay, by the relay's id."""
    found: dict[str, Raw] = {}
    while len(found) < len(sidecar.processes()) - 1:
        raw = opened.enter_context(Raw(sidecar.port()))
        raw.exchange(get_subscriptions())
        (entry,) = [
            connection for connection in sidecar.connections() if connection["source_port"] == raw.port
        ]
        found.setdefault(entry["id"].rpartition("-")[0], raw)
    return found


def wait_for_another(sidecar: GatewaySidecar, name: str, pid: int) -> None:
    """Wait until another process has taken the place of one, and the sidecar is ready."""
    wait_until(
        lambda: sidecar.processes().get(name) not in {None, pid}, timeout_s=TIMEOUT_S, what=f"a new {name}"
    )
    wait_until(sidecar.is_ready, timeout_s=TIMEOUT_S, what="readiness")


def test_without_the_core_traffic_flows_and_telemetry_is_throttled(broker: ScriptedBroker) -> None:
    with (
        GatewaySidecar(config(broker.port, **relays(2))) as sidecar,
        contextlib.ExitStack() as opened,
    ):
        raws = list(on_all_relays(sidecar, opened).values())
        for _ in range(2):
            core = sidecar.processes()[CORE]
            os.kill(core, signal.SIGSTOP)  # so that the next one can't start before it is killed
            for raw in raws:
                assert raw.exchange(produce_frame(2, b"through")).endswith(b"through")
                started = time.monotonic()
                assert error_of(raw.exchange(get_subscriptions())) == THROTTLING_QUOTA_EXCEEDED
                assert time.monotonic() - started < 100  # the core would not answer before it is killed
                assert raw.exchange(produce_frame(2, b"still")).endswith(b"still")
            os.kill(core, signal.SIGKILL)
            wait_for_another(sidecar, CORE, core)
            for raw in raws:
                assert error_of(raw.exchange(get_subscriptions())) == 0
                assert raw.exchange(produce_frame(2, b"again")).endswith(b"again")
            ports = {raw.port for raw in raws}
            assert ports <= {connection["source_port"] for connection in sidecar.connections()}
            assert sidecar.value("core_unavailable_calls_total") >= len(raws)
        sidecar.wait_for_log("the core died")


@pytest.mark.full
def test_a_core_that_hangs_is_replaced(broker: ScriptedBroker) -> None:
    with GatewaySidecar(config(broker.port)) as sidecar, Raw(sidecar.port()) as raw:
        core = sidecar.processes()[CORE]
        os.kill(core, signal.SIGSTOP)
        assert error_of(raw.exchange(get_subscriptions())) == THROTTLING_QUOTA_EXCEEDED
        wait_for_another(sidecar, CORE, core)
        assert error_of(raw.exchange(get_subscriptions())) == 0
        sidecar.wait_for_log("a process does not answer, it is killed")


@pytest.mark.full
def test_a_relay_takes_only_its_own_connections_with_it(broker: ScriptedBroker) -> None:
    with (
        GatewaySidecar(config(broker.port, **relays(2))) as sidecar,
        contextlib.ExitStack() as opened,
    ):
        raws = on_all_relays(sidecar, opened)
        counted = sidecar.value("connections_opened_total", listener="CLIENT")
        dying, living = sorted(raws)
        pid = sidecar.processes()["kct-relay-1"]
        by_pid = {"kct-relay-1": dying, "kct-relay-2": living}
        os.kill(pid, signal.SIGSTOP)  # so that what is missing can be seen
        os.kill(pid, signal.SIGKILL)
        assert raws[by_pid["kct-relay-1"]].fate() in {"end", "reset"}
        living_raw = raws[by_pid["kct-relay-2"]]
        assert living_raw.exchange(produce_frame(2, b"lives")).endswith(b"lives")
        assert error_of(living_raw.exchange(get_subscriptions())) == 0
        wait_for_another(sidecar, "kct-relay-1", pid)
        assert [
            connection for connection in sidecar.connections() if connection["id"].startswith(dying)
        ] == []
        assert sidecar.value("connections_opened_total", listener="CLIENT") >= counted
        assert sidecar.value("relays") == 2
        (entry,) = sidecar.awaited("a relay died, its connections are lost")
        assert entry["how"] == "killed by SIGKILL"


def test_the_supervisors_death_leaves_nothing_behind(broker: ScriptedBroker) -> None:
    with GatewaySidecar(config(broker.port, **relays(2))) as sidecar:
        pids = [sidecar.pid, *sidecar.processes().values()]
        os.kill(sidecar.pid, signal.SIGKILL)
        sidecar.wait()
        wait_until(lambda: not any(map(_runs, pids)), timeout_s=TIMEOUT_S, what="the end of all processes")
        sidecar.start()


def _runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.full
def test_the_core_has_a_lower_priority_than_the_relays(broker: ScriptedBroker) -> None:
    settings = config(broker.port, gateway={"relays": 1, "core_nice": 7})
    with GatewaySidecar(settings) as sidecar:
        processes = sidecar.processes()
        own = os.getpriority(os.PRIO_PROCESS, sidecar.pid)
        assert os.getpriority(os.PRIO_PROCESS, processes["kct-relay-1"]) == own
        assert os.getpriority(os.PRIO_PROCESS, processes[CORE]) == min(19, own + 7)


def wait_for_connections(sidecar: GatewaySidecar, name: str, count: int) -> None:
    wait_until(
        lambda: len(sidecar.connections(name)) == count, timeout_s=TIMEOUT_S, what=f"{count} connections"
    )


@pytest.mark.full
def test_limits_hold_for_all_relays_together(broker: ScriptedBroker) -> None:
    settings = config(broker.port, **relays(2), limits={"source_address": {"connections": 10}})
    settings["listeners"].append(listener("LIMITED", broker.port, max_connections=3))
    with GatewaySidecar(settings) as sidecar, contextlib.ExitStack() as opened:
        for name, most in (("LIMITED", 3), ("CLIENT", 7)):
            served = 0
            for _ in range(most + 5):
                with contextlib.suppress(OSError, EOFError):  # one may be reset before it is connected
                    raw = opened.enter_context(Raw(sidecar.port(name)))
                    raw.exchange(get_subscriptions())
                    served += 1
            # The core ends those over the limit a moment after their relay has admitted them.
            wait_for_connections(sidecar, name, most)
            assert served >= most
        assert sidecar.value("connections_refused_total", listener="LIMITED", reason="limit") == 5
        refused = sidecar.value("connections_refused_total", listener="CLIENT", reason="limit_source_address")
        assert refused == 5


@pytest.mark.full
def test_each_line_is_logged_once_and_a_stop_logs_no_problem(broker: ScriptedBroker) -> None:
    settings = config(broker.port, **relays(2), log={"format": "json"})
    with GatewaySidecar(settings) as sidecar, contextlib.ExitStack() as opened:
        for raw in on_all_relays(sidecar, opened).values():
            _, instance, subscription = read_get(raw.exchange(get_subscriptions()))
            raw.exchange(push(instance, subscription))
        for event in ("accepting clients", "the broker answers"):
            assert len(sidecar.awaited(event)) == 1
        assert sidecar.terminate() == 0
        lines = [line for line in sidecar.logged_objects() if line.get("of") != "subscription"]  # it has none
        assert [line for line in lines if line["level"] != "info"] == []
        assert [line for line in lines if "problem" in line] == []


@pytest.mark.full
def test_every_process_shows_its_cost(broker: ScriptedBroker) -> None:
    with GatewaySidecar(config(broker.port, **relays(2))) as sidecar:
        for name in ("process_cpu_seconds_total", "process_resident_bytes", "event_loop_lag_seconds"):
            shown = sidecar.series(name)
            assert {dict(labels)["process"] for labels in shown} == {"core", "relay-1", "relay-2"}
            assert all(value > 0 for value in shown.values())


# -- SIGHUP ----------------------------------------------------------------------------------------


def reloaded(sidecar: GatewaySidecar, event: str = "configuration reloaded") -> None:
    before = len(sidecar.logged(event))
    sidecar.reload()
    wait_until(lambda: len(sidecar.logged(event)) > before, timeout_s=TIMEOUT_S, what=event)


def test_listeners_and_relays_are_reloaded_unnoticed_by_clients(broker: ScriptedBroker) -> None:
    settings = config(broker.port, **relays(1))
    with GatewaySidecar(settings) as sidecar, Raw(sidecar.port()) as raw:
        raw.exchange(get_subscriptions())
        settings["listeners"].append(listener("LATER", broker.port))
        settings["gateway"]["relays"] = 3
        settings["telemetry"] = {"max_bytes": 4096}
        reloaded(sidecar)
        wait_until(sidecar.is_ready, timeout_s=TIMEOUT_S, what="readiness")
        assert sidecar.value("relays") == 3
        with Raw(sidecar.port("LATER")) as later:
            answer = later.exchange(get_subscriptions())
            assert (4096).to_bytes(4, "big") in answer, "telemetry.max_bytes"
        assert raw.exchange(produce_frame(2, b"same")).endswith(b"same")
        gone = settings["listeners"].pop()
        settings["gateway"]["relays"] = 1
        reloaded(sidecar)
        assert refusal(int(gone["bind"].rpartition(":")[2]))[0] == "refused"
        assert raw.exchange(produce_frame(2, b"same")).endswith(b"same")
        wait_until(lambda: len(sidecar.processes()) == 2, timeout_s=TIMEOUT_S, what="one relay")
        assert raw.exchange(produce_frame(2, b"same")).endswith(b"same")


@pytest.mark.full
def test_a_configuration_that_cannot_be_applied_changes_nothing(broker: ScriptedBroker) -> None:
    settings = config(broker.port)
    with GatewaySidecar(settings) as sidecar, Raw(sidecar.port()) as raw:
        with listening_on(LOOPBACK) as taken:
            settings["listeners"].append(listener("LATER", broker.port))
            bind = {"bind": f"{LOOPBACK}:{taken.getsockname()[1]}"}
            settings["listeners"].append(listener("TAKEN", broker.port) | bind)
            reloaded(sidecar, "configuration not reloaded")
        assert "listener TAKEN" in sidecar.logged("configuration not reloaded")[-1]["problem"]
        assert refusal(sidecar.port("LATER"))[0] == "refused"
        settings["listeners"].pop()
        settings["listeners"][-1] |= {
            "security_protocol": "SSL",
            "tls": {"cert_file": "/none", "key_file": "/none"},
        }
        reloaded(sidecar, "configuration not reloaded")
        assert "listener LATER" in sidecar.logged("configuration not reloaded")[-1]["problem"]
        assert refusal(sidecar.port("LATER"))[0] == "refused"
        settings["listeners"].pop()
        # The core finds those of plugins, and the supervisor the others.
        settings["plugins"] = [{"type": "otlp"}, {"type": "otlp", "name": "other"}]
        for place, more in (
            ("plugins[0]", {}),
            ("drain", {"drain": {"timeout_s": "soon"}, "log": {"level": "loud"}}),
        ):
            settings |= more
            reloaded(sidecar, "configuration not reloaded")
            problem = sidecar.logged("configuration not reloaded")[-1]["problem"]
            assert place in problem
            assert problem.endswith(" (and 1 more mistake)")
        assert raw.exchange(produce_frame(2, b"same")).endswith(b"same")
        assert sidecar.is_ready()


@pytest.mark.full
def test_plugins_are_replaced_one_by_one(broker: ScriptedBroker, tmp_path: Path) -> None:
    settings = config(broker.port, **relays(2))
    kept = {"type": "console", "name": "kept"}
    spooled = {
        "type": "console",
        "name": "spooled",
        "delivery": "spool_always",
        "spool": {"path": str(tmp_path)},
    }
    settings["plugins"] = [kept, spooled]
    with GatewaySidecar(settings) as sidecar, Raw(sidecar.port()) as raw:
        _, instance, subscription = read_get(raw.exchange(get_subscriptions()))
        assert error_of(raw.exchange(push(instance, subscription))) == 0
        settings["plugins"] = [kept, {"type": "console", "name": "new"}]
        reloaded(sidecar)

        def names() -> dict[str, str]:
            items = sidecar.http.get("/v1/plugins").json()["items"]
            return {item["name"]: item["state"] for item in items}

        wait_until(lambda: names() == {"kept": "running", "new": "running"}, timeout_s=TIMEOUT_S, what="it")
        started = [line["plugin"] for line in sidecar.logged("plugin started")]
        assert sorted(started) == ["kept", "new", "spooled"], "the one that stays is not started again"
        assert any(tmp_path.iterdir()), "the spool of the removed plugin is kept"
        assert sidecar.is_ready()
