"""The sidecar with TLS: bad files, and certificates that change."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    config,
    get_subscriptions,
    read_get,
)
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.testbed.ports import LOOPBACK
from tests.testbed.process import StartError, wait_until
from tests.testbed.scripted_broker import ScriptedBroker, produce_frame

AUTHORITY = CertificateAuthority()


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


@pytest.fixture
def server(tmp_path: Path) -> CertificateFiles:
    return AUTHORITY.issue().write(tmp_path, "server")


def settings(broker: ScriptedBroker, server: CertificateFiles, **more: Any) -> dict[str, Any]:
    """A sidecar with an SSL listener."""
    made = config(broker.port)
    made["listeners"][0] |= {
        "security_protocol": "SSL",
        "tls": {"cert_file": str(server.chain), "key_file": str(server.key)},
        **more,
    }
    return made


@contextlib.contextmanager
def over_tls(sidecar: GatewaySidecar, server: CertificateFiles) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=server.ca)
    with (
        socket.create_connection((LOOPBACK, sidecar.port()), TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        yield tls


def exchange(tls: ssl.SSLSocket, request: bytes) -> bytes:
    tls.sendall(request)

    def read(count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = tls.recv(count - len(data))
            assert chunk, "the stream ended"
            data += chunk
        return data

    return read(int.from_bytes(read(4), "big"))


def serial_of(tls: ssl.SSLSocket) -> int:
    shown = tls.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def test_a_certificate_is_exchanged_while_connections_go_on(
    broker: ScriptedBroker, server: CertificateFiles
) -> None:
    one_relay = {**settings(broker, server), "gateway": {"relays": 1}}  # each looks for itself
    with GatewaySidecar(one_relay) as sidecar, over_tls(sidecar, server) as before:
        assert read_get(exchange(before, get_subscriptions()))[0] == 0
        renewed = AUTHORITY.issue()
        renewed.write(server.chain.parent, "server")
        time.sleep(1.1)  # it looks at the files once a second at most
        with over_tls(sidecar, server) as after:
            assert serial_of(after) == renewed.x509.serial_number != serial_of(before)
            assert exchange(after, produce_frame(1, b"new")).endswith(b"new")
            assert exchange(before, produce_frame(1, b"old")).endswith(b"old")
        assert sidecar.awaited("TLS files re-read")
        server.key.write_text("nothing")
        time.sleep(1.1)
        with over_tls(sidecar, server) as still:
            assert serial_of(still) == renewed.x509.serial_number
        (entry,) = sidecar.awaited("TLS files can't be used, the old ones stay")
        assert (
            f"listeners[].tls.key_file: {server.key}: expected a private key in PEM form" in entry["problem"]
        )
        assert "PRIVATE" not in sidecar.log_text()


def encrypt(key: Path) -> None:
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (Path.unlink, "No such file or directory"),
        pytest.param(encrypt, "the key is encrypted; store it without", marks=pytest.mark.full),
    ],
)
def test_a_key_that_cannot_be_used_ends_the_start(
    broker: ScriptedBroker, server: CertificateFiles, spoil: Any, why: str
) -> None:
    spoil(server.key)
    with pytest.raises(StartError) as raised, GatewaySidecar(settings(broker, server)):
        pass
    assert f"listener CLIENT: listeners[].tls.key_file: {server.key}: {why}" in str(raised.value)
    assert "Traceback" not in str(raised.value)


@pytest.mark.full
def test_silent_clients_cost_the_broker_nothing_and_end(
    broker: ScriptedBroker, server: CertificateFiles
) -> None:
    with (
        GatewaySidecar(settings(broker, server, handshake_timeout_ms=500)) as sidecar,
        contextlib.ExitStack() as opened,
    ):
        files, peers = sidecar.open_files(), len(broker.peers)
        silent = [opened.enter_context(Raw(sidecar.port())) for _ in range(50)]
        with over_tls(sidecar, server) as tls:
            assert exchange(tls, produce_frame(1, b"served")).endswith(b"served")
        assert {raw.fate() for raw in silent} == {"reset"}
        labels = {"listener": "CLIENT", "reason": "handshake_timeout"}
        assert sidecar.value("connections_refused_total", **labels) == 50
        assert len(broker.peers) == peers + 1
        wait_until(lambda: sidecar.open_files() <= files, timeout_s=TIMEOUT_S, what="files to be closed")


@pytest.mark.full
def test_a_drain_tells_tls_clients_the_end(broker: ScriptedBroker, server: CertificateFiles) -> None:
    with GatewaySidecar(settings(broker, server)) as sidecar, over_tls(sidecar, server) as tls:
        exchange(tls, produce_frame(1))
        sidecar.signal(signal.SIGTERM)
        assert tls.recv(1) == b"", "a close_notify, as a socket that is just closed raises"
        assert sidecar.wait() == 0
