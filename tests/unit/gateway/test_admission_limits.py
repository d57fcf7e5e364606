"""Limits on the connections of one peer."""

from __future__ import annotations

import contextlib

from structlog.testing import capture_logs

from receiver.settings.limits import LimitsSettings, PeerLimitsSettings, PrincipalLimitsSettings
from tests.testbed.ports import LOOPBACK
from tests.testbed.scripted_broker import ScriptedBroker, produce_frame
from tests.unit.gateway.admission import (
    ELSEWHERE,
    PROXIED,
    is_served,
    nobody_is_counted,
    over_tls,
    refusals,
    verifying,
)
from tests.unit.gateway.support import (
    Gate,
    connected,
    eventually,
    is_reset,
    on_loop,
    opened,
    receive_frame,
    send,
)
from tests.unit.gateway.tls import Certificates


def limited(connections: int) -> Gate:
    return Gate(
        limits=LimitsSettings(
            source_address=PeerLimitsSettings(connections=connections),
            principal=PrincipalLimitsSettings(connections=1),
        )
    )


def test_a_source_address_with_as_many_connections_as_it_may_have_gets_no_more(
    broker: ScriptedBroker,
) -> None:
    async def main() -> None:
        gate = limited(2)
        async with opened(gate.listener(broker.port)) as listener, connected(listener):
            async with connected(listener):
                await eventually(lambda: len(gate.registry) == 2, "two connections")
                with capture_logs() as log:
                    assert await is_reset(listener)
                    assert await is_reset(listener)
                (entry,) = refusals(log)
                assert entry["reason"] == "limit_source_address"
                assert entry["problem"] == f"{LOOPBACK} is over limits.source_address.connections (2)"
                labels = {"listener": "CLIENT", "reason": "limit_source_address"}
                assert gate.value("connections_refused_total", **labels) == 2
                async with connected(listener, ELSEWHERE):
                    await eventually(lambda: len(gate.registry) == 3, "another's connection")
            await eventually(lambda: len(gate.registry) == 1, "a free place")
            async with connected(listener) as again:
                await send(again, produce_frame(1))
                await receive_frame(again)
        assert nobody_is_counted(gate)

    on_loop(main())


def test_a_load_balancers_clients_are_limited_and_it_is_not(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = limited(1)
        async with (
            opened(gate.listener(broker.port, **PROXIED)) as listener,
            contextlib.AsyncExitStack() as all_,
        ):
            for number in range(3):
                client = await all_.enter_async_context(connected(listener))
                await send(client, b"PROXY TCP4 192.0.2.%d 10.0.0.1 1 2\r\n" % number + produce_frame(1))
                await receive_frame(client)
            assert await is_reset(listener, b"PROXY TCP4 192.0.2.1 10.0.0.1 1 2\r\n")
            labels = {"listener": "CLIENT", "reason": "limit_source_address"}
            assert gate.value("connections_refused_total", **labels) == 1
        assert nobody_is_counted(gate)

    on_loop(main())


def test_a_principal_with_as_many_connections_as_it_may_have_gets_no_more(
    certificates: Certificates, broker: ScriptedBroker
) -> None:
    async def main() -> None:
        gate = limited(100)
        context = certificates.client_context(identity=certificates.client)
        async with opened(gate.listener(broker.port, **verifying(certificates, "required"))) as listener:
            async with over_tls(listener, context) as peer:
                assert await is_served(peer)
                async with over_tls(listener, context) as another:
                    assert not await another.is_told_the_end()
                labels = {"listener": "CLIENT", "reason": "limit_principal"}
                assert gate.value("connections_refused_total", **labels) == 1
            await eventually(lambda: not len(gate.registry), "the end")
            async with over_tls(listener, context) as peer:
                assert await is_served(peer)
        assert nobody_is_counted(gate)

    on_loop(main())


def test_a_client_is_not_counted_after_its_broker_failed(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = limited(1)
        async with opened(gate.listener(broker.port)) as listener:
            await eventually(lambda: listener.upstream_problem is None, "a probe")
            broker.stop()
            assert await is_reset(listener)
        assert gate.value("connections_refused_total", listener="CLIENT", reason="upstream") == 1
        assert nobody_is_counted(gate)

    on_loop(main())
