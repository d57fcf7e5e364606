"""Admission over TLS: certificates, principals, handshakes."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from receiver.gateway.connection.tls_socket import Missing, TlsSocket, wrap
from receiver.gateway.handshake import HandshakeTurns, handshake
from receiver.telemetry.identity import ANONYMOUS
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.testbed.scripted_broker import ScriptedBroker, produce_frame
from tests.unit.gateway.admission import (
    asked,
    is_served,
    nobody_is_counted,
    over_tls,
    refusal,
    refusal_line,
    refusals,
    ssl_settings,
    verifying,
)
from tests.unit.gateway.support import (
    Gate,
    connected,
    eventually,
    is_reset,
    on_loop,
    opened,
    pair,
)
from tests.unit.gateway.tls import V1_2, V1_3, Certificates, TlsPeer

#: How OpenSSL's words for a certificate that it refuses begin.
VERIFY = "certificate verify failed"


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
            entry = await refusal_line(gate, listener, certificates.client_context(version=V1_2))
            assert (entry["reason"], entry["problem"]) == ("tls_handshake", "unsupported protocol")
            assert "listeners[].tls.min_version" in entry["likely_cause"]
            async with over_tls(listener, certificates.client_context()) as peer:
                assert await is_served(peer)

    on_loop(main())


@pytest.mark.parametrize("version", [V1_2, V1_3])
@pytest.mark.parametrize(
    ("certificate", "cause"),
    [
        ("of another authority", "the client does not trust the listener's certificate: give it the CA"),
        ("of another name", "connect to a name in the certificate"),
        ("expired", "the listener's certificate has expired"),
    ],
)
def test_a_client_that_refuses_the_listeners_certificate_is_named_with_the_likely_cause(
    certificates: Certificates,
    broker: ScriptedBroker,
    tmp_path: Path,
    version: ssl.TLSVersion,
    certificate: str,
    cause: str,
) -> None:
    authority = certificates.authority
    if certificate == "of another authority":
        issued = CertificateAuthority("Another").issue()
    elif certificate == "of another name":
        issued = authority.issue(dns_names=["elsewhere"], ip_addresses=[])
    else:
        ended = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
        issued = authority.issue(not_after=ended)
    files = issued.write(tmp_path)

    async def main() -> None:
        gate = Gate()
        settings = ssl_settings(certificates, cert_file=files.chain, key_file=files.key)
        async with opened(gate.listener(broker.port, **settings)) as listener:
            entry = await refusal_line(gate, listener, certificates.client_context(version=version))
            assert (entry["reason"], entry["source_address"]) == ("tls_handshake", "127.0.0.1")
            assert cause in entry["likely_cause"]

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
    ("client_auth", "kind", "problem", "cause"),
    [
        ("required", "none", "peer did not return a certificate", "the client has no certificate"),
        ("required", "expired", f"{VERIFY}: certificate has expired", "certificate has expired: renew it"),
        ("required", "of another authority", f"{VERIFY}: unable to get local issuer", "client_ca_file"),
        ("required", "of a server", f"{VERIFY}: unsuitable certificate purpose", "usage clientAuth"),
        ("requested", "expired", f"{VERIFY}: certificate has expired", "certificate has expired: renew it"),
        ("requested", "of another authority", f"{VERIFY}: unable to get local issuer", "client_ca_file"),
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
    cause: str,
) -> None:
    async def main() -> None:
        gate = Gate()
        async with opened(gate.listener(broker.port, **verifying(certificates, client_auth))) as listener:
            context = certificates.client_context(
                version=version, identity=identity(certificates, tmp_path, kind)
            )
            entry = await refusal_line(gate, listener, context)
            assert (entry["reason"], entry["source_address"]) == ("tls_handshake", "127.0.0.1")
            assert entry["problem"].startswith(problem)
            assert cause in entry["likely_cause"]
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
            (entry,) = refusals(log)
            assert (entry["reason"], entry["problem"]) == (
                "handshake_timeout",
                "no handshake within listeners[].handshake_timeout_ms (150)",
            )
        assert gate.value("connections_refused_total", listener="CLIENT", reason="handshake_timeout") == 3
        assert nobody_is_counted(gate)
        assert asked(broker) == 0

    on_loop(main())


@pytest.mark.parametrize(
    ("say", "problem", "cause"),
    [
        (produce_frame(1), "wrong version number", "set its security.protocol to SSL"),
        (b"GET / HTTP/1.1\r\n\r\n", "http request", "an HTTP client"),
        (bytes(100), "wrong version number", "set its security.protocol to SSL"),
        (b"\x16\x03\x01\x00\x05hello", "unexpected message", ""),
    ],
)
def test_what_is_no_tls_is_refused(
    certificates: Certificates, broker: ScriptedBroker, say: bytes, problem: str, cause: str
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
            (entry,) = refusals(log)
            assert (entry["reason"], entry["problem"]) == ("tls_handshake", problem)
            assert entry["source_address"] == "127.0.0.1"
            assert cause in entry.get("likely_cause", "")
        assert nobody_is_counted(gate)
        assert asked(broker) == 0

    on_loop(main())


def test_a_client_gets_an_alert_when_its_certificate_is_refused(
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

        def do_handshake(self: TlsSocket) -> Missing | None:
            steps.append(turns)
            return real(self)

        monkeypatch.setattr(TlsSocket, "do_handshake", do_handshake)
        order = HandshakeTurns()
        ends = [pair() for _ in range(40)]
        others = [pair() for _ in range(10)]
        silent = [wrap(certificates.listener_context(), other, server_side=True) for _, other in others]
        for outer, _ in others[:5]:
            outer.close()
        hanging = [asyncio.create_task(handshake(tls, order, "peer")) for tls in silent]
        peers = [TlsPeer(outer, certificates.client_context()) for outer, _ in ends]
        inner = [wrap(certificates.listener_context(), end, server_side=True) for _, end in ends]
        await asyncio.gather(
            *(peer.shake_hands() for peer in peers), *(handshake(tls, order, "peer") for tls in inner)
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
