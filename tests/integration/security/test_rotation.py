"""Certificates change on disk while clients run, and no client is disconnected."""

from __future__ import annotations

import contextlib
import datetime

from cryptography import x509

from tests.integration.gateway.support import GatewaySidecar
from tests.integration.security.support import TIMEOUT_S, TOPIC, SidecarFiles, is_served, shows
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.testbed.clients import FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.process import wait_until
from tests.testbed.security import Security

LISTENER = "ROTATING"


def shown(sidecar: GatewaySidecar, alice: CertificateFiles) -> int:
    """Return the serial number of the sidecar's certificate."""
    with shows(sidecar.port(LISTENER), alice.ca, alice) as raw:
        der = raw.socket.getpeercert(binary_form=True)  # type: ignore[attr-defined]
    return x509.load_der_x509_certificate(der).serial_number


def wait_until_served(sidecar: GatewaySidecar, alice: CertificateFiles, *, served: bool) -> None:
    # Each relay looks at the files when a client connects to it.
    wait_until(
        lambda: all(is_served(sidecar.port(LISTENER), alice.ca, alice) is served for _ in range(20)),
        timeout_s=TIMEOUT_S,
        what=f"alice to be {'served' if served else 'refused'} by all relays",
    )


def test_clients_continue_while_every_certificate_changes(
    secured: GatewaySidecar,
    authority: CertificateAuthority,
    broker_authority: CertificateAuthority,
    rotating: SidecarFiles,
    alice: CertificateFiles,
) -> None:
    with contextlib.ExitStack() as running:
        clients = [
            running.enter_context(
                kind(
                    Mode.PRODUCER,
                    bootstrap=secured.bootstrap(LISTENER),
                    topic=TOPIC,
                    client_id=f"rotation-{kind.language}",
                    security=Security(ca=alice.ca, certificate=alice),
                )
            )
            for kind in (JavaClient, LibrdkafkaClient, FranzClient)
        ]
        for client in clients:
            client.wait_for_records(5)
        before = {connection["id"] for connection in secured.connections(LISTENER)}
        folder = rotating.server.chain.parent
        certificate = authority.issue()
        certificate.write(folder, rotating.server.chain.stem)
        broker_authority.issue(client=True).write(folder, rotating.upstream.chain.stem)
        wait_until(
            lambda: shown(secured, alice) == certificate.x509.serial_number,
            timeout_s=TIMEOUT_S,
            what="the new certificate",
        )
        wait_until_served(secured, alice, served=True)
        for client in clients:
            client.wait_for_records(client.records + 5)
            assert client.errors == []
        assert before <= {connection["id"] for connection in secured.connections(LISTENER)}


def test_trusted_client_cas_follow_the_file(
    secured: GatewaySidecar, authority: CertificateAuthority, rotating: SidecarFiles, alice: CertificateFiles
) -> None:
    stranger = CertificateAuthority("Another CA")
    assert is_served(secured.port(LISTENER), alice.ca, alice)
    try:
        rotating.server.ca.write_text(stranger.ca_pem)
        wait_until_served(secured, alice, served=False)
    finally:
        rotating.server.ca.write_text(authority.ca_pem)
    wait_until_served(secured, alice, served=True)


def test_the_certificate_for_the_broker_follows_the_files(
    secured: GatewaySidecar,
    broker_authority: CertificateAuthority,
    rotating: SidecarFiles,
    alice: CertificateFiles,
) -> None:
    folder, name = rotating.upstream.chain.parent, rotating.upstream.chain.stem
    ended = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=1)
    try:
        broker_authority.issue(client=True, not_after=ended).write(folder, name)
        wait_until_served(secured, alice, served=False)
    finally:
        broker_authority.issue(client=True).write(folder, name)
    wait_until_served(secured, alice, served=True)


def test_invalid_files_change_nothing(
    secured: GatewaySidecar, authority: CertificateAuthority, rotating: SidecarFiles, alice: CertificateFiles
) -> None:
    before, good = shown(secured, alice), rotating.server.key.read_text()
    another = authority.issue().key_pem
    rotating.server.key.write_text(another)
    try:
        wait_until(
            lambda: shown(secured, alice) != before or "this is not the key of" in secured.log_text(),
            timeout_s=TIMEOUT_S,
            what="a word in the log",
        )
        assert shown(secured, alice) == before
        assert is_served(secured.port(LISTENER), alice.ca, alice)
    finally:
        rotating.server.key.write_text(good)
    assert another.splitlines()[1] not in secured.log_text()
