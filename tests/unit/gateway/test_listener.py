"""A listener admits, resets and counts clients, and drains."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from structlog.testing import capture_logs

from receiver.gateway.gateway import Gateway
from receiver.settings.hostport import HostPorts
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.scripted_broker import Peer, ScriptedBroker, framed, produce_frame
from tests.unit.gateway.support import (
    Gate,
    at_end,
    connected,
    eventually,
    is_refused,
    is_reset,
    listener_settings,
    on_loop,
    opened,
    receive,
    receive_frame,
    send,
)
from tests.unit.session.support import get_subscriptions, read_subscriptions


def test_a_connection_is_registered_counted_and_removed(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        async with opened(gate.listener(broker.port)) as listener:
            async with connected(listener) as client:
                await send(client, get_subscriptions())
                assert read_subscriptions(await receive_frame(client)).error_code == 0
                (entry,) = gate.registry.snapshot()
                assert len(gate.registry) == 1
                assert (entry.source_address, entry.source_port) == client.getsockname()
                assert (entry.listener, entry.client_id) == ("CLIENT", "raw")
                assert gate.value("connections_opened_total", listener="CLIENT") == 1
                assert listener.traffic[0] == len(get_subscriptions())
            await eventually(lambda: not len(gate.registry), "the entry's end")
            assert gate.disconnected == [entry.id]
            assert listener.traffic[0] == len(get_subscriptions()), (
                "what closed connections carried counts on"
            )
            closed = gate.value("connections_closed_total", listener="CLIENT", reason="client_closed")
            assert closed == 1
        assert gate.value("upstream_connect_seconds_count", listener="CLIENT") == 1

    on_loop(main())


def test_every_connection_has_an_id_of_its_own(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        async with (
            opened(gate.listener(broker.port)) as one,
            opened(gate.listener(broker.port)) as other,
            connected(one),
            connected(other),
            connected(one),
        ):
            await eventually(lambda: len(gate.registry) == 3, "three connections")
            assert len({entry.id for entry in gate.registry.snapshot()}) == 3

    on_loop(main())


def test_a_client_is_refused_while_the_broker_is_down() -> None:
    async def main() -> None:
        gate, broker = Gate(), ScriptedBroker()
        async with opened(gate.listener(broker.port)) as listener:
            await eventually(lambda: is_refused(listener), "the closed port")
            assert listener.upstream_problem == "Connection refused"
            with broker:
                await eventually(lambda: not is_refused(listener), "the open port")
                async with connected(listener):
                    await eventually(lambda: len(gate.registry) == 1, "a connection")

    on_loop(main())


def test_a_client_that_comes_when_the_broker_goes_is_reset_and_no_other(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        with capture_logs() as log:
            async with opened(gate.listener(broker.port)) as listener:
                await eventually(lambda: listener.upstream_problem is None, "a probe")
                broker.stop()
                assert await is_reset(listener)
                await eventually(lambda: is_refused(listener), "the closed port")
        assert gate.value("connections_refused_total", listener="CLIENT", reason="upstream") >= 1
        (entry,) = [line for line in log if line["event"] == "connection refused"]
        assert entry["problem"] == f"{LOOPBACK}:{broker.port}: Connection refused"
        assert len(gate.registry) == 0

    on_loop(main())


def test_relays_that_share_a_port_open_it_again_for_each_other(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        async with opened(gate.listener(broker.port)) as one:
            await eventually(lambda: one.upstream_problem is None, "a probe")
            assert one._port is not None
            one._port._socket.shutdown(
                socket.SHUT_RD
            )  # what another relay does that does not reach the broker
            await eventually(lambda: not is_refused(one), "the open port")
            async with connected(one):
                await eventually(lambda: len(gate.registry) == 1, "a connection")

    on_loop(main())


def test_a_client_is_reset_when_connecting_takes_too_long() -> None:
    async def main() -> None:
        gate = Gate()
        with socket.create_server((LOOPBACK, 0), backlog=0) as full, contextlib.ExitStack() as others:
            address = full.getsockname()
            for _ in range(3):  # more than the backlog: whoever comes next gets no answer
                other = others.enter_context(socket.socket())
                other.setblocking(False)
                other.connect_ex(address)
            async with opened(gate.listener(address[1], connect_timeout_ms=200)) as listener:
                assert await is_reset(listener)
                assert listener.upstream_problem is not None
        assert gate.value("connections_refused_total", listener="CLIENT", reason="upstream") == 1

    on_loop(main())


def test_a_host_without_an_address_is_named() -> None:
    async def main() -> None:
        gate = Gate()
        settings = listener_settings(1)
        upstream = HostPorts.parse("no.such.host.invalid:1")
        listener = gate.listener_of(settings.model_copy(update={"upstream": upstream}))
        async with opened(listener):
            await eventually(lambda: is_refused(listener), "the closed port")
            assert listener.upstream_problem is not None
            assert "name" in listener.upstream_problem.lower()  # "Name or service not known", or alike

    on_loop(main())


def test_one_connection_too_many_is_reset_and_a_place_is_free_again(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        async with opened(gate.listener(broker.port, max_connections=2)) as listener, connected(listener):
            async with connected(listener):
                await eventually(lambda: len(gate.registry) == 2, "two connections")
                assert await is_reset(listener)
                assert gate.value("connections_refused_total", listener="CLIENT", reason="limit") == 1
            await eventually(lambda: len(gate.registry) == 1, "a free place")
            async with connected(listener) as again:
                await send(again, produce_frame(1, b"in"))
                assert (await receive_frame(again)).endswith(b"in")

    on_loop(main())


def test_a_drain_closes_idle_connections_and_accepts_none(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        loop = asyncio.get_running_loop()
        async with opened(gate.listener(broker.port)) as listener, connected(listener) as client:
            await send(client, produce_frame(1))
            await receive_frame(client)
            started = loop.time()
            listener.stop_accepting()
            with pytest.raises(ConnectionRefusedError):
                async with connected(listener):
                    pass
            await listener.drain(started + 10)
            assert loop.time() - started < 3  # nothing is in flight
            assert await at_end(client)
            assert gate.value("connections_closed_total", listener="CLIENT", reason="drained") == 1

    on_loop(main())


def test_a_drain_waits_a_while_where_it_can_not_know_whether_an_answer_is_due(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        loop = asyncio.get_running_loop()
        async with opened(gate.listener(broker.port)) as listener, connected(listener) as client:
            await send(client, produce_frame(1, acks=0) + produce_frame(2))
            await receive_frame(client)
            started = loop.time()
            listener.stop_accepting()
            await listener.drain(started + 10)
            assert 2.5 < loop.time() - started < 8
            assert await at_end(client)

    on_loop(main())


def test_a_drain_waits_for_an_answer_of_ours(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        loop = asyncio.get_running_loop()

        def slowly(peer: Peer) -> None:
            for data in peer.frames():
                peer.ended.wait(1.3)
                peer.answer(data)

        async with opened(gate.listener(broker.port)) as listener, connected(listener) as client:
            await eventually(lambda: listener.upstream_problem is None, "the broker's answer")
            broker.script = slowly
            async with connected(listener) as slow:
                await send(slow, get_subscriptions())
                await eventually(lambda: listener.traffic[0] > 0, "the request")
                listener.stop_accepting()
                drained = asyncio.create_task(listener.drain(loop.time() + 10))
                assert read_subscriptions(await receive_frame(slow)).error_code == 0
                await drained
            assert await at_end(client)

    on_loop(main())


def test_a_drain_cancels_clients_that_are_being_connected() -> None:
    async def main() -> None:
        gate = Gate()
        with socket.create_server((LOOPBACK, 0), backlog=0) as full, contextlib.ExitStack() as others:
            address = full.getsockname()
            for _ in range(3):
                other = others.enter_context(socket.socket())
                other.setblocking(False)
                other.connect_ex(address)
            async with (
                opened(gate.listener(address[1], connect_timeout_ms=60_000)) as listener,
                connected(listener) as client,
            ):
                await asyncio.sleep(0.05)
                listener.stop_accepting()
                await listener.drain(asyncio.get_running_loop().time() + 5)
                assert not await at_end(client)

    on_loop(main())


def test_a_client_that_leaves_while_it_is_connected_leaves_nothing_behind(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        async with opened(gate.listener(broker.port)) as listener:
            for _ in range(50):
                async with connected(listener) as client:
                    client.close()
            await eventually(
                lambda: (
                    gate.value("connections_opened_total", listener="CLIENT") == 50 and not len(gate.registry)
                ),
                "fifty connections' end",
            )

    on_loop(main())


def test_the_gateway_names_every_listener_with_an_unreachable_broker(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        gateway = Gateway()
        gateway.replace([gate.listener(broker.port), gate.listener(port := free_port())])
        expected = [f"listener CLIENT: broker {LOOPBACK}:{port}: Connection refused"]
        await eventually(lambda: gateway.problems() == expected, "one problem")
        gateway.stop_accepting()
        await gateway.drain(0.0)

    on_loop(main())


def test_malformed_bytes_are_counted_and_logged_once_in_a_while(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        with capture_logs() as log:
            async with opened(gate.listener(broker.port)) as listener:
                for _ in range(3):
                    async with connected(listener) as client:
                        await send(client, framed(b"")[:4] + b"garbage")
                        await receive(client, 1)
                await eventually(lambda: not len(gate.registry), "their end")
        labels = {"listener": "CLIENT", "reason": "client_protocol_error"}
        assert gate.value("protocol_errors_total", **labels) == 3
        (entry,) = [line for line in log if line["event"] == "closed for malformed bytes"]
        assert entry["problem"].startswith("expected a frame length from 8 to")
        assert entry["source"].startswith(LOOPBACK)

    on_loop(main())
