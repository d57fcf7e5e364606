"""Who is let in, and who is not: TLS, principals by certificate, PROXY headers, limits by source address."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, MutableMapping, MutableSequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from receiver.gateway.handshake import handshake
from receiver.gateway.listener import Listener
from receiver.gateway.tls_socket import TlsSocket, wrap
from receiver.settings.hostport import HostPort
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings, PrincipalLimitsSettings
from receiver.telemetry.connection import ANONYMOUS
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.scripted_broker import ScriptedBroker, produce_frame
from tests.unit.gateway.support import (
    Gate,
    at_end,
    connected,
    eventually,
    is_reset,
    on_loop,
    opened,
    pair,
    receive_frame,
    send,
)
from tests.unit.gateway.test_proxy_protocol import INET, INET6, V4, V6, v2
from tests.unit.gateway.tls import V1_2, V1_3, Certificates, TlsPeer
from tests.unit.session.support import get_subscriptions, read_subscriptions

PROXIED: dict[str, Any] = {"proxy_protocol": {"from": ["127.0.0.1/32", "::1/128"]}}
ELSEWHERE = "127.0.0.2"


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def ssl_settings(certificates: Certificates, **tls: object) -> dict[str, Any]:
    """Settings of an SSL listener."""
    return {"security_protocol": "SSL", "tls": certificates.server_settings(**tls)}


def verifying(certificates: Certificates, client_auth: str, **more: object) -> dict[str, Any]:
    """Settings of an SSL listener that looks at client certificates."""
    authority = {} if client_auth == "none" else {"client_ca": certificates.server.ca}
    return {**ssl_settings(certificates, client_auth=client_auth, **authority), **more}


@contextlib.asynccontextmanager
async def over_tls(
    listener: Listener, context: ssl.SSLContext, *, first: bytes = b""
) -> AsyncIterator[TlsPeer]:
    """A client whose handshake is over."""
    async with connected(listener) as client:
        await send(client, first)
        peer = TlsPeer(client, context)
        await peer.shake_hands()
        yield peer


async def is_served(peer: TlsPeer) -> bool:
    await peer.send(produce_frame(1, b"echo") + get_subscriptions())
    echoed = (await peer.receive_frame()).endswith(b"echo")
    return echoed and read_subscriptions(await peer.receive_frame()).error_code == 0


async def refusal(gate: Gate, listener: Listener, context: ssl.SSLContext) -> tuple[str, str]:
    """Connect over TLS in vain; the reason that is counted, and the problem that is logged."""
    with capture_logs() as log:
        with contextlib.suppress(ssl.SSLError, ConnectionResetError):
            async with over_tls(listener, context) as peer:
                await peer.receive(1)
        await eventually(lambda: bool(refusals(log)), "a refusal")
    (said,) = refusals(log)
    assert gate.value("connections_refused_total", listener="CLIENT", reason=said["reason"]) == 1
    assert nobody_is_counted(gate)
    return said["reason"], said["problem"]


def nobody_is_counted(gate: Gate) -> bool:
    limits = gate.limits
    return not (limits._sources._connections or limits._principals._connections or limits._principal_of)


def asked(broker: ScriptedBroker) -> int:
    """How many connections the broker got beside the probe's, which need not have come yet."""
    return max(0, len(broker.peers) - 1)


def refusals(log: MutableSequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [line for line in log if line["event"] == "connection refused"]


# -- TLS ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V1_2, V1_3])
def test_a_client_is_served_over_tls(
    certificates: Certificates, broker: ScriptedBroker, version: ssl.TLSVersion
) -> None:
    async def main() -> None:
        gate = Gate()
        async with opened(gate.listener(broker.port, **ssl_settings(certificates))) as listener:
            async with over_tls(listener, certificates.client_context(version=version)) as peer:
                assert peer.tls.version() == ("TLSv1.2" if version is V1_2 else "TLSv1.3")
                assert peer.tls.compression() is None
                assert await is_served(peer)
                (entry,) = gate.registry.snapshot()
                assert (entry.security_protocol, entry.principal) == ("SSL", ANONYMOUS)
                assert (entry.source_address, entry.source_port) == peer.end.getsockname()
            await eventually(lambda: nobody_is_counted(gate), "the end")

    on_loop(main())


def test_tls_1_2_is_refused_where_1_3_is_the_least(
    certificates: Certificates, broker: ScriptedBroker
) -> None:
    async def main() -> None:
        gate = Gate()
        settings = ssl_settings(certificates, min_version="1.3")
        async with opened(gate.listener(broker.port, **settings)) as listener:
            assert await refusal(gate, listener, certificates.client_context(version=V1_2)) == (
                "tls_handshake",
                "unsupported protocol",
            )
            async with over_tls(listener, certificates.client_context()) as peer:
                assert await is_served(peer)

    on_loop(main())


def identity(certificates: Certificates, folder: Path, kind: str) -> CertificateFiles | None:
    if kind == "expired":
        ended = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
        issued = certificates.authority.issue(common_name="alice", client=True, not_after=ended)
        return issued.write(folder, "expired")
    if kind == "of another authority":
        return CertificateAuthority("Another").issue(common_name="alice", client=True).write(folder, "other")
    if kind == "of a server":
        return certificates.server
    return certificates.client if kind == "good" else None


@pytest.mark.parametrize("version", [V1_2, V1_3])
@pytest.mark.parametrize(
    ("client_auth", "kind", "problem"),
    [
        ("required", "none", "peer did not return a certificate"),
        ("required", "expired", "certificate verify failed: certificate has expired"),
        ("required", "of another authority", "certificate verify failed: unable to get local issuer"),
        ("required", "of a server", "certificate verify failed: unsuitable certificate purpose"),
        ("requested", "expired", "certificate verify failed: certificate has expired"),
        ("requested", "of another authority", "certificate verify failed: unable to get local issuer"),
    ],
)
def test_a_client_certificate_that_is_no_good_is_refused(
    certificates: Certificates,
    broker: ScriptedBroker,
    tmp_path: Path,
    version: ssl.TLSVersion,
    client_auth: str,
    kind: str,
    problem: str,
) -> None:
    async def main() -> None:
        gate = Gate()
        async with opened(gate.listener(broker.port, **verifying(certificates, client_auth))) as listener:
            context = certificates.client_context(
                version=version, identity=identity(certificates, tmp_path, kind)
            )
            reason, said = await refusal(gate, listener, context)
            assert reason == "tls_handshake"
            assert said.startswith(problem)
            assert asked(broker) == 0

    on_loop(main())


@pytest.mark.parametrize(
    ("client_auth", "kind", "rules", "principal"),
    [
        ("required", "good", "DEFAULT", "User:CN=alice,O=Example"),
        ("required", "good", "RULE:^CN=([^,]+).*$/$1/U,DEFAULT", "User:ALICE"),
        ("requested", "good", "DEFAULT", "User:CN=alice,O=Example"),
        ("requested", "none", "DEFAULT", ANONYMOUS),
        ("none", "good", "DEFAULT", ANONYMOUS),
    ],
)
def test_a_principal_is_named_by_its_certificate(
    certificates: Certificates,
    broker: ScriptedBroker,
    tmp_path: Path,
    client_auth: str,
    kind: str,
    rules: str,
    principal: str,
) -> None:
    async def main() -> None:
        gate = Gate()
        settings = verifying(certificates, client_auth, principal_mapping_rules=rules)
        async with opened(gate.listener(broker.port, **settings)) as listener:
            context = certificates.client_context(identity=identity(certificates, tmp_path, kind))
            for _ in range(2):  # the second time, a session may be taken up again
                async with over_tls(listener, context) as peer:
                    assert await is_served(peer)
                    (entry,) = gate.registry.snapshot()
                    assert entry.principal == principal
                await eventually(lambda: not len(gate.registry), "the end")
            assert nobody_is_counted(gate)
            labels = {"listener": "CLIENT", "mechanism": "TLS", "outcome": "succeeded"}
            assert gate.value("authenticated_total", **labels) == (0 if principal == ANONYMOUS else 2)

    on_loop(main())


def test_a_session_is_not_taken_up_again_where_certificates_are_asked_for(
    certificates: Certificates, broker: ScriptedBroker
) -> None:
    """It would not be verified again, and its certificate may have ended."""

    async def main() -> None:
        for settings, expected in ((verifying(certificates, "required"), 0), (ssl_settings(certificates), 2)):
            gate = Gate()
            async with opened(gate.listener(broker.port, **settings)) as listener:
                context = certificates.client_context(version=V1_3, identity=certificates.client)
                async with over_tls(listener, context) as peer:
                    assert await is_served(peer)
                    session = peer.tls.session
                    assert session is not None
                    assert session.has_ticket == (expected > 0)

    on_loop(main())


def test_a_certificate_that_no_rule_names_is_refused(
    certificates: Certificates, broker: ScriptedBroker
) -> None:
    async def main() -> None:
        gate = Gate()
        settings = verifying(certificates, "required", principal_mapping_rules="RULE:^CN=bob$/bob/")
        async with opened(gate.listener(broker.port, **settings)) as listener:
            reason, problem = await refusal(
                gate, listener, certificates.client_context(identity=certificates.client)
            )
            assert reason == "principal"
            assert "CN=alice,O=Example" in problem
            labels = {"listener": "CLIENT", "mechanism": "TLS", "outcome": "failed"}
            assert gate.value("authenticated_total", **labels) == 1
            assert asked(broker) == 0

    on_loop(main())


def test_the_principal_of_a_sasl_listener_is_not_the_certificates(
    certificates: Certificates, broker: ScriptedBroker
) -> None:
    async def main() -> None:
        gate = Gate()
        settings = {**verifying(certificates, "required"), "security_protocol": "SASL_SSL"}
        async with opened(gate.listener(broker.port, **settings)) as listener:
            context = certificates.client_context(identity=certificates.client)
            async with over_tls(listener, context):
                await eventually(lambda: len(gate.registry) == 1, "a connection")
                (entry,) = gate.registry.snapshot()
                assert entry.principal == ANONYMOUS

    on_loop(main())


@pytest.mark.parametrize(
    "say", [b"", b"\x16\x03\x01\x02\x00\x01\x00", b"\x16"], ids=["nothing", "half a hello", "a byte"]
)
def test_a_client_that_is_slow_to_shake_hands_is_reset_and_costs_the_broker_nothing(
    certificates: Certificates, broker: ScriptedBroker, say: bytes
) -> None:
    async def main() -> None:
        gate = Gate()
        settings = ssl_settings(certificates)
        async with opened(gate.listener(broker.port, handshake_timeout_ms=150, **settings)) as listener:
            with capture_logs() as log:
                for _ in range(3):
                    assert await is_reset(listener, say)
            (said,) = refusals(log)
            assert (said["reason"], said["problem"]) == (
                "handshake_timeout",
                "listeners[].handshake_timeout_ms is 150",
            )
        assert gate.value("connections_refused_total", listener="CLIENT", reason="handshake_timeout") == 3
        assert nobody_is_counted(gate)
        assert asked(broker) == 0

    on_loop(main())


@pytest.mark.parametrize(
    ("say", "problem"),
    [
        (produce_frame(1), "wrong version number"),
        (b"GET / HTTP/1.1\r\n\r\n", "http request"),
        (bytes(100), "wrong version number"),
        (b"\x16\x03\x01\x00\x05hello", "unexpected message"),
    ],
)
def test_what_is_no_tls_is_refused(
    certificates: Certificates, broker: ScriptedBroker, say: bytes, problem: str
) -> None:
    async def main() -> None:
        gate = Gate()
        async with opened(gate.listener(broker.port, **ssl_settings(certificates))) as listener:
            with capture_logs() as log:
                for _ in range(3):
                    await is_reset(listener, say)
                labels = {"listener": "CLIENT", "reason": "tls_handshake"}
                await eventually(
                    lambda: gate.value("connections_refused_total", **labels) == 3,
                    "three refusals",
                )
            (said,) = refusals(log)
            assert (said["reason"], said["problem"]) == ("tls_handshake", problem)
        assert nobody_is_counted(gate)
        assert asked(broker) == 0

    on_loop(main())


def test_a_client_is_told_why_its_certificate_is_refused(
    certificates: Certificates, broker: ScriptedBroker
) -> None:
    async def main() -> None:
        gate = Gate()
        async with (
            opened(gate.listener(broker.port, **verifying(certificates, "required"))) as listener,
            over_tls(listener, certificates.client_context(version=V1_3)) as peer,
        ):
            with pytest.raises(ssl.SSLError, match="certificate required"):
                await peer.receive(1)

    on_loop(main())


def test_a_health_check_that_only_connects_is_counted_and_not_logged(
    certificates: Certificates, broker: ScriptedBroker
) -> None:
    async def main() -> None:
        gate = Gate()
        async with opened(gate.listener(broker.port, **ssl_settings(certificates))) as listener:
            with capture_logs() as log:
                async with connected(listener):
                    pass
                await eventually(
                    lambda: gate.value("connections_refused_total", listener="CLIENT", reason="gone") == 1,
                    "its end",
                )
            assert refusals(log) == []
        assert nobody_is_counted(gate)

    on_loop(main())


def test_handshakes_take_one_step_in_a_turn_of_the_loop(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that whoever has a connection is served in between, however many begin one, or fail to."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        turns, steps = 0, list[int]()

        def count() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(count)

        count()
        real = TlsSocket.do_handshake

        def do_handshake(self: TlsSocket, block: bool = False) -> None:
            steps.append(turns)
            real(self, block)

        monkeypatch.setattr(TlsSocket, "do_handshake", do_handshake)
        turn = asyncio.Lock()
        ends = [pair() for _ in range(40)]
        others = [pair() for _ in range(10)]
        silent = [wrap(certificates.listener_context(), one, server_side=True) for _, one in others]
        for outer, _ in others[:5]:
            outer.close()
        hanging = [asyncio.create_task(handshake(tls, turn)) for tls in silent]
        peers = [TlsPeer(outer, certificates.client_context()) for outer, _ in ends]
        inner = [wrap(certificates.listener_context(), one, server_side=True) for _, one in ends]
        await asyncio.gather(
            *(peer.shake_hands() for peer in peers), *(handshake(tls, turn) for tls in inner)
        )
        assert len(steps) >= 2 * len(ends) + len(others)
        assert len(set(steps)) == len(steps)
        assert [task.done() for task in hanging] == [True] * 5 + [False] * 5
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        for side in (*inner, *silent, *(outer for outer, _ in (*ends, *others))):
            side.close()

    on_loop(main())


# -- load balancers -----------------------------------------------------------------------------------


HEADERS = {
    "v1": (b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 443\r\n", V4),
    "v1 of IPv6": (b"PROXY TCP6 2001:db8::1 fd00::1 56324 443\r\n", V6),
    "v2": (v2(), V4),
    "v2 of IPv6": (v2(INET6, family=0x21), V6),
    "v2 with a TLV": (v2(INET, b"\x04\0\x02xy"), V4),
    "v1 UNKNOWN": (b"PROXY UNKNOWN\r\n", None),
    "LOCAL": (v2(b"", command=0x20, family=0), None),
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("arrival", ["whole", "with the request", "byte by byte"])
def test_a_load_balancer_says_who_the_client_is(broker: ScriptedBroker, name: str, arrival: str) -> None:
    header, source = HEADERS[name]

    async def main() -> None:
        gate = Gate()
        async with (
            opened(gate.listener(broker.port, **PROXIED)) as listener,
            connected(listener) as client,
        ):
            request = produce_frame(1, b"echo")
            if arrival == "with the request":
                await send(client, header + request)
            elif arrival == "whole":
                await send(client, header)
                await asyncio.sleep(0.01)
                await send(client, request)
            else:
                for byte in header + request:
                    await send(client, bytes([byte]))
                    await asyncio.sleep(0.0005)
            assert (await receive_frame(client)).endswith(b"echo")
            (entry,) = gate.registry.snapshot()
            assert (entry.source_address, entry.source_port) == (source or client.getsockname())

    on_loop(main())


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_goes_before_tls(certificates: Certificates, broker: ScriptedBroker, name: str) -> None:
    header, source = HEADERS[name]

    async def main() -> None:
        gate = Gate()
        settings = {**PROXIED, **ssl_settings(certificates)}
        async with (
            opened(gate.listener(broker.port, **settings)) as listener,
            over_tls(listener, certificates.client_context(), first=header) as peer,
        ):
            assert await is_served(peer)
            (entry,) = gate.registry.snapshot()
            assert (entry.source_address, entry.source_port) == (source or peer.end.getsockname())

    on_loop(main())


@pytest.mark.parametrize(
    "header", [b"PROXY TCP4 192.0.2.1 10.0.0.1 1 2\r\nbehind", b"P", v2() + b"behind", b"\r"]
)
def test_a_header_from_elsewhere_is_refused(broker: ScriptedBroker, header: bytes) -> None:
    async def main() -> None:
        gate = Gate()
        async with opened(gate.listener(broker.port, **PROXIED)) as listener:
            with capture_logs() as log, contextlib.suppress(ConnectionResetError):
                async with connected(listener, ELSEWHERE) as client:
                    await send(client, header)
                    assert not await at_end(client)
            (said,) = refusals(log)
            assert said["reason"] == "proxy_protocol"
            assert said["problem"].startswith(f"a PROXY header from {ELSEWHERE}, which is in no network of")
        assert gate.value("connections_refused_total", listener="CLIENT", reason="proxy_protocol") == 1
        assert asked(broker) == 0

    on_loop(main())


def test_a_client_from_elsewhere_is_a_client_as_any_other(
    certificates: Certificates, broker: ScriptedBroker
) -> None:
    async def main() -> None:
        gate = Gate()
        async with (
            opened(gate.listener(broker.port, **PROXIED)) as listener,
            connected(listener, ELSEWHERE) as client,
        ):
            await send(client, produce_frame(1, b"echo"))
            assert (await receive_frame(client)).endswith(b"echo")
            (entry,) = gate.registry.snapshot()
            assert entry.source_address == ELSEWHERE

    on_loop(main())


@pytest.mark.parametrize(
    ("say", "reason"),
    [
        (produce_frame(1), "proxy_protocol"),
        (b"PROXY nonsense\r\n", "proxy_protocol"),
        (v2(length=5000), "proxy_protocol"),
        (b"", "handshake_timeout"),
        (v2()[:-1], "handshake_timeout"),
    ],
)
def test_a_load_balancer_has_to_send_a_header(broker: ScriptedBroker, say: bytes, reason: str) -> None:
    async def main() -> None:
        gate = Gate()
        settings = {**PROXIED, "handshake_timeout_ms": 150}
        async with opened(gate.listener(broker.port, **settings)) as listener:
            assert await is_reset(listener, say)
        assert gate.value("connections_refused_total", listener="CLIENT", reason=reason) == 1
        assert nobody_is_counted(gate)
        assert asked(broker) == 0

    on_loop(main())


def test_a_header_that_ends_in_its_middle_is_an_end(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        async with (
            opened(gate.listener(broker.port, **PROXIED)) as listener,
            connected(listener) as client,
        ):
            await send(client, v2()[:20])
            client.shutdown(socket.SHUT_WR)
            assert not await at_end(client)
            assert gate.value("connections_refused_total", listener="CLIENT", reason="gone") == 1

    on_loop(main())


def test_a_listener_for_both_families_shows_ipv4_as_ipv4(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        bind = HostPort(host="::", port=free_port())
        async with opened(gate.listener(broker.port, bind=bind, **PROXIED)):
            with socket.socket() as client:
                client.setblocking(False)
                await asyncio.get_running_loop().sock_connect(client, (LOOPBACK, bind.port))
                await send(client, v2(b"", command=0x20, family=0) + produce_frame(1, b"echo"))
                assert (await receive_frame(client)).endswith(b"echo")
                (entry,) = gate.registry.snapshot()
                assert entry.source_address == LOOPBACK

    on_loop(main())


# -- limits -------------------------------------------------------------------------------------------


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
                (said,) = refusals(log)
                assert said["reason"] == "limit_source_address"
                assert said["problem"] == f"{LOOPBACK} is over limits.source_address.connections (2)"
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


def test_a_client_whose_broker_is_down_is_not_counted_any_more() -> None:
    async def main() -> None:
        gate = limited(1)
        async with opened(gate.listener(free_port())) as listener:
            for _ in range(3):
                assert await is_reset(listener)
        assert gate.value("connections_refused_total", listener="CLIENT", reason="upstream") == 3
        assert nobody_is_counted(gate)

    on_loop(main())
