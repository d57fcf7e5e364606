"""TLS to the broker: trust, client certificates, and advice in errors."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from receiver.gateway.listeners.listener import Listener
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.ports import LOOPBACK
from tests.testbed.scripted_broker import (
    API_VERSIONS,
    CLUSTER_ID,
    METADATA,
    Peer,
    ScriptedBroker,
    produce_frame,
)
from tests.unit.gateway.support import (
    Gate,
    connected,
    eventually,
    is_refused,
    on_loop,
    opened,
    receive_frame,
    send,
)
from tests.unit.gateway.tls import V1_2, V1_3, Certificates, TlsPeer, tls_broker
from tests.unit.session.support import get_subscriptions, read_subscriptions


async def problem_of(listener: Listener) -> str:
    """What the listener's watch finds wrong with its broker."""
    await eventually(lambda: listener.upstream_problem not in (None, "not probed yet"), "a problem")
    assert listener.upstream_problem is not None
    return listener.upstream_problem


def asked(broker: ScriptedBroker) -> list[list[int]]:
    """The API keys of each connection's requests."""
    return [[request.api_key for request in peer.answers.seen] for peer in broker.peers]


async def is_ready(listener: Listener) -> None:
    await eventually(lambda: listener.upstream_problem is None, "the broker")


@pytest.mark.parametrize("version", [V1_2, V1_3])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_client_is_served_over_tls_to_the_broker(
    certificates: Certificates, version: ssl.TLSVersion, protocol: str
) -> None:
    async def main() -> None:
        gate = Gate()
        settings: dict[str, Any] = {"upstream_tls": certificates.upstream_settings()}
        if protocol == "SSL":
            settings |= {"security_protocol": "SSL", "tls": certificates.server_settings()}
        with tls_broker(certificates.broker_context(version=version)) as broker:
            async with opened(gate.listener(broker.port, **settings)) as listener:
                await is_ready(listener)
                assert gate.broker.known.broker.cluster_id == CLUSTER_ID
                assert asked(broker)[0][:2] == [API_VERSIONS, METADATA]
                async with connected(listener) as client:
                    if protocol == "SSL":
                        peer = TlsPeer(client, certificates.client_context())
                        await peer.shake_hands()
                        await peer.send(get_subscriptions() + produce_frame(1, b"echo"))
                        assert read_subscriptions(await peer.receive_frame()).error_code == 0
                        assert (await peer.receive_frame()).endswith(b"echo")
                    else:
                        await send(client, get_subscriptions() + produce_frame(1, b"echo"))
                        assert read_subscriptions(await receive_frame(client)).error_code == 0
                        assert (await receive_frame(client)).endswith(b"echo")

    on_loop(main())


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_a_listener_with_sasl_is_not_asked_for_its_cluster(certificates: Certificates, protocol: str) -> None:
    async def main() -> None:
        settings: dict[str, Any] = {
            "upstream_tls": certificates.upstream_settings(),
            "security_protocol": protocol,
        }
        if protocol == "SASL_SSL":
            settings["tls"] = certificates.server_settings()
        with tls_broker(certificates.broker_context()) as broker:
            async with opened(Gate().listener(broker.port, **settings)) as listener:
                await is_ready(listener)
                assert asked(broker) == [[API_VERSIONS]]

    on_loop(main())


async def is_away(gate: Gate, broker: ScriptedBroker, upstream_tls: object, expected: str) -> None:
    """The watch says what is wrong, and clients are refused."""
    async with opened(gate.listener(broker.port, upstream_tls=upstream_tls)) as listener:
        assert await problem_of(listener) == expected
        await eventually(lambda: is_refused(listener), "the closed port")


def test_a_broker_of_another_authority_is_not_trusted(certificates: Certificates, tmp_path: Path) -> None:
    other = CertificateAuthority("Another").issue().write(tmp_path).ca

    async def main() -> None:
        with tls_broker(certificates.broker_context()) as broker:
            await is_away(
                Gate(),
                broker,
                certificates.upstream_settings(ca_file=other),
                "TLS: certificate verify failed: unable to get local issuer certificate; "
                "set listeners[].upstream_tls.ca_file to the CA of the broker's certificate",
            )

    on_loop(main())


def test_a_broker_of_another_name_is_not_trusted_unless_names_do_not_count(
    certificates: Certificates,
) -> None:
    async def main() -> None:
        with tls_broker(certificates.broker_context()) as broker:
            await is_away(
                Gate(),
                broker,
                certificates.upstream_settings(server_name="broker.test"),
                "TLS: certificate verify failed: Hostname mismatch, certificate is not valid for "
                "'broker.test'.; set listeners[].upstream_tls.server_name to a name in the broker's "
                "certificate",
            )
            for settings in (
                certificates.upstream_settings(server_name="broker.test", verify_hostname=False),
                certificates.upstream_settings(server_name="localhost"),
                certificates.upstream_settings(),  # its address
            ):
                async with opened(Gate().listener(broker.port, upstream_tls=settings)) as listener:
                    await is_ready(listener)

    on_loop(main())


@pytest.mark.parametrize("version", [V1_2, V1_3])
def test_a_broker_that_wants_a_certificate_gets_the_configured_one(
    certificates: Certificates, version: ssl.TLSVersion
) -> None:
    """Under TLS 1.3 its refusal comes only after our side of the handshake."""

    async def main() -> None:
        context = certificates.broker_context(version=version, wants_client=True)
        with tls_broker(context) as broker:
            async with opened(
                Gate().listener(broker.port, upstream_tls=certificates.upstream_settings())
            ) as listener:
                assert "; the broker may require a client certificate: set listeners[].upstream_tls." in (
                    await problem_of(listener)
                )
            settings = certificates.upstream_settings(
                cert_file=certificates.client.chain, key_file=certificates.client.key
            )
            async with opened(Gate().listener(broker.port, upstream_tls=settings)) as listener:
                await is_ready(listener)
                async with connected(listener) as client:
                    await send(client, produce_frame(1, b"echo"))
                    assert (await receive_frame(client)).endswith(b"echo")
                    shown = broker.peers[-1].socket
                    assert isinstance(shown, ssl.SSLSocket)
                    assert "alice" in str(shown.getpeercert())

    on_loop(main())


@pytest.fixture
def plain() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


@pytest.mark.parametrize("say", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_the_error_for_a_broker_without_tls_says_so(
    certificates: Certificates, plain: ScriptedBroker, say: bytes
) -> None:
    def end(peer: Peer) -> None:
        """As Kafka does, to which the beginning of TLS is a request of 369 MB."""
        peer.read(4)
        peer.socket.sendall(say)

    plain.script = end

    async def main() -> None:
        settings = certificates.upstream_settings()
        async with opened(Gate().listener(plain.port, upstream_tls=settings)) as listener:
            problem = await problem_of(listener)
            assert problem.startswith("TLS: ")
            assert problem.endswith("remove listeners[].upstream_tls")

    on_loop(main())


def test_the_error_for_a_broker_that_needs_tls_says_so(certificates: Certificates) -> None:
    async def main() -> None:
        with tls_broker(certificates.broker_context()) as broker:
            async with opened(Gate().listener(broker.port)) as listener:
                assert "set listeners[].upstream_tls" in await problem_of(listener)

    on_loop(main())


def test_a_broker_that_hangs_in_the_handshake_is_given_up_in_time(certificates: Certificates) -> None:
    async def main() -> None:
        gate = Gate()
        settings = {"upstream_tls": certificates.upstream_settings(), "connect_timeout_ms": 200}
        with socket.create_server((LOOPBACK, 0)) as silent:
            async with opened(gate.listener(silent.getsockname()[1], **settings)) as listener:
                assert await problem_of(listener) == "no response within 0.2 s"
                await eventually(lambda: is_refused(listener), "the closed port")

    on_loop(main())


def test_a_new_authority_is_taken_over(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.watch._EVERY_S", 0.0)
    authority = tmp_path / "ca.pem"
    shutil.copy(certificates.server.ca, authority)
    other = CertificateAuthority("Another").issue().write(tmp_path, "other")

    async def main() -> None:
        renewed = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        renewed.load_cert_chain(other.chain, other.key)
        with tls_broker(renewed) as broker:
            settings = certificates.upstream_settings(ca_file=authority)
            async with opened(Gate().listener(broker.port, upstream_tls=settings)) as listener:
                assert "unable to get local issuer certificate" in await problem_of(listener)
                shutil.copy(other.ca, authority)
                await is_ready(listener)

    on_loop(main())


def test_a_brokers_alert_ends_the_connection_and_is_logged(certificates: Certificates) -> None:
    async def main() -> None:
        gate = Gate()
        with tls_broker(certificates.broker_context(version=V1_3, wants_client=True)) as broker:
            async with (
                opened(gate.listener(broker.port, upstream_tls=certificates.upstream_settings())) as listener,
                connected(listener) as client,
            ):
                await asyncio.get_running_loop().sock_recv(client, 1)
                labels = {"listener": "CLIENT", "reason": "broker_tls_error"}
                await eventually(lambda: gate.value("connections_closed_total", **labels) == 1, "its end")
                assert gate.value("protocol_errors_total", **labels) == 1

    on_loop(main())


def test_a_stopped_broker_waits_for_no_handshake(certificates: Certificates) -> None:
    """A silent client's handshake ends with the broker, not with the client."""

    def is_wrapped() -> bool:
        plain = type(broker.peers[0].socket) is socket.socket
        return not plain or broker.peers[0].socket.fileno() == -1

    async def main() -> None:
        await eventually(lambda: bool(broker.peers) and is_wrapped(), "TLS")
        broker.stop()

    with (
        tls_broker(certificates.broker_context()) as broker,
        socket.create_connection((LOOPBACK, broker.port)),
    ):
        on_loop(main())
