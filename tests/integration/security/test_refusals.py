"""No unauthenticated client can push, whatever the listener's settings."""

from __future__ import annotations

import contextlib
import datetime
import socket
import time
from collections.abc import Iterator

import pytest

from tests.integration.gateway.support import GatewaySidecar, Raw, get_subscriptions, read_get
from tests.integration.security.support import (
    ILLEGAL_SASL_STATE,
    INTERVAL_MS,
    KNOWN,
    MISCONFIGURED,
    SASL_AUTHENTICATION_FAILED,
    TIMEOUT_S,
    TOPIC,
    RawLogin,
    SidecarFiles,
    error_of,
    exports_of,
    is_served,
    login,
    plain_token,
    sasl_authenticate,
    sasl_handshake,
)
from tests.testbed.broker import SASL_USERS, KafkaBroker
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.testbed.clients import Client, FranzClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until
from tests.testbed.security import Login, Mechanism, Security
from tests.testbed.sidecar import config_for

OK = 0


def asks(raw: Raw) -> int | None:
    """Get subscriptions; return the error code, None if the connection ends."""
    try:
        return read_get(raw.exchange(get_subscriptions()))[0]
    except (EOFError, ConnectionError):
        return None


def principal_of(sidecar: GatewaySidecar, listener: str, raw: Raw) -> str | None:
    """Return the principal of a raw client's connection; None if it is closed."""
    found = [
        connection for connection in sidecar.connections(listener) if connection["source_port"] == raw.port
    ]
    return found[0]["principal"] if found else None


@pytest.fixture(scope="module")
def misconfigured(
    secured_broker: KafkaBroker, files: SidecarFiles, alice: CertificateFiles, shared_collector: Collector
) -> Iterator[GatewaySidecar]:
    """A sidecar whose listeners are all misconfigured."""
    settings = config_for(secured_broker, collector=shared_collector, listeners=MISCONFIGURED)
    settings["listeners"] = [setting for setting in settings["listeners"] if setting["name"] in MISCONFIGURED]
    mutual, sasl_tls = secured_broker.port("MUTUAL"), secured_broker.port("SASL_TLS")
    ca = {"ca_file": str(files.upstream.ca)}
    ours = {"cert_file": str(alice.chain), "key_file": str(alice.key)}
    settings["listeners"] += [
        {
            "name": name,
            "bind": f"{LOOPBACK}:{free_port()}",
            "upstream": f"{LOOPBACK}:{upstream}",
            "upstream_tls": upstream_tls,
        }
        for name, upstream, upstream_tls in (
            ("STRANGER", sasl_tls, {"ca_file": str(alice.ca)}),
            ("OTHER_NAME", sasl_tls, {**ca, "server_name": "elsewhere.example"}),
            ("NOTHING_TO_SHOW", mutual, ca),
            ("WRONG_TO_SHOW", mutual, {**ca, **ours}),
        )
    ]
    with GatewaySidecar(settings, wait_for_broker=False) as sidecar:
        sidecar.put_subscription("security", [KNOWN], INTERVAL_MS)
        yield sidecar


@pytest.fixture
def with_sasl(listener: str, secured: GatewaySidecar, misconfigured: GatewaySidecar) -> int:
    """The port of a listener in front of a broker's listener with SASL."""
    return (misconfigured if listener in MISCONFIGURED else secured).port(listener)


@pytest.mark.parametrize("listener", ["SASL", "OPEN_BEFORE_SASL", "REAUTH"])
def test_telemetry_before_a_login_gets_no_answer(with_sasl: int) -> None:
    with RawLogin(with_sasl) as raw:
        assert asks(raw) is None


@pytest.mark.parametrize("listener", ["SASL", "OPEN_BEFORE_SASL"])
def test_telemetry_during_a_login_is_refused(with_sasl: int) -> None:
    with RawLogin(with_sasl) as raw:
        assert raw.handshake("SCRAM-SHA-256") == OK
        assert raw.authenticate(b"n,,n=alice,r=abcdef") == OK
        assert asks(raw) == ILLEGAL_SASL_STATE


def test_telemetry_after_a_failed_login_gets_no_answer(secured: GatewaySidecar) -> None:
    with RawLogin(secured.port("SASL")) as raw:
        assert raw.plain("alice", "wrong") == SASL_AUTHENTICATION_FAILED
        assert principal_of(secured, "SASL", raw) != "User:alice"
        with contextlib.suppress(OSError):
            assert asks(raw) is None


def test_telemetry_after_a_login_is_answered(secured: GatewaySidecar) -> None:
    with RawLogin(secured.port("SASL")) as raw:
        assert raw.plain("alice", SASL_USERS["alice"]) == OK
        assert read_get(raw.exchange(get_subscriptions()))[0] == OK
        assert principal_of(secured, "SASL", raw) == "User:alice"


def test_a_login_under_another_name_is_refused(secured: GatewaySidecar) -> None:
    with RawLogin(secured.port("REAUTH")) as raw:
        assert raw.plain("alice", SASL_USERS["alice"]) == OK
        assert read_get(raw.exchange(get_subscriptions()))[0] == OK
        assert raw.plain("bob", SASL_USERS["bob"]) != OK
        assert principal_of(secured, "REAUTH", raw) != "User:bob"
        with contextlib.suppress(OSError):
            assert asks(raw) is None


def test_telemetry_ahead_of_a_login_waits_for_the_brokers_answer(secured: GatewaySidecar) -> None:
    for password, answers in (
        (SASL_USERS["alice"], [OK, OK, OK]),
        ("wrong", [OK, SASL_AUTHENTICATION_FAILED]),
    ):
        with RawLogin(secured.port("SASL")) as raw:
            token = plain_token("alice", password)
            raw.send(sasl_handshake("PLAIN") + sasl_authenticate(token) + get_subscriptions())
            codes = [error_of(raw.frame()), error_of(raw.frame())]
            with contextlib.suppress(EOFError, ConnectionError):
                codes.append(read_get(raw.frame())[0])
            assert codes == answers


def test_a_name_in_another_mechanisms_token_is_ignored(secured: GatewaySidecar) -> None:
    """The broker refuses a PLAIN token in a SCRAM login, and the reverse."""
    scram = b"n,,n=alice,r=abcdef"
    for mechanism, token in (("SCRAM-SHA-256", plain_token("alice", SASL_USERS["alice"])), ("PLAIN", scram)):
        with RawLogin(secured.port("SASL")) as raw:
            assert raw.handshake(mechanism) == OK
            assert raw.authenticate(token) == SASL_AUTHENTICATION_FAILED
            assert principal_of(secured, "SASL", raw) != "User:alice"
            assert asks(raw) is None


def test_a_login_that_the_broker_does_not_require_is_ignored(misconfigured: GatewaySidecar) -> None:
    """The broker's listener does not authenticate, so a listener with SASL trusts no login."""
    with RawLogin(misconfigured.port("SASL_BEFORE_OPEN")) as raw:
        assert raw.handshake("PLAIN") == ILLEGAL_SASL_STATE
        assert asks(raw) == ILLEGAL_SASL_STATE
    with RawLogin(misconfigured.port("SASL_BEFORE_OPEN")) as raw:
        assert asks(raw) == ILLEGAL_SASL_STATE


@pytest.mark.parametrize("kind", [LibrdkafkaClient, FranzClient])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_client_with_a_wrong_password_pushes_nothing(
    secured: GatewaySidecar, shared_collector: Collector, kind: type[Client], mechanism: Mechanism
) -> None:
    client_id = f"wrong-{kind.language}-{mechanism}"
    wrong = Login(mechanism=mechanism, user="alice", password="wrong")
    with kind(
        Mode.PRODUCER,
        bootstrap=secured.bootstrap("SASL"),
        topic=TOPIC,
        client_id=client_id,
        security=Security(login=wrong),
    ) as client:
        deadline = time.monotonic() + 3 * INTERVAL_MS / 1000
        while time.monotonic() < deadline:
            shown = [
                connection
                for connection in secured.connections("SASL")
                if connection["client_id"] == client_id
            ]
            assert "User:alice" not in {item["principal"] for item in shown}
            time.sleep(0.05)
        assert client.records == 0
        client.kill()
    assert exports_of(shared_collector.exports(), client_id) == []


def test_a_plaintext_listener_in_front_of_sasl_trusts_the_broker(
    misconfigured: GatewaySidecar, shared_collector: Collector
) -> None:
    """The login passes through, so the broker's answer decides as on other listeners."""
    client_id = "open-before-sasl"
    with FranzClient(
        Mode.PRODUCER,
        bootstrap=misconfigured.bootstrap("OPEN_BEFORE_SASL"),
        topic=TOPIC,
        client_id=client_id,
        security=Security(login=login("SCRAM-SHA-256")),
    ) as client:
        client.wait_for_records(5)
        exports = shared_collector.wait_for(
            lambda exports: bool(exports_of(exports, client_id)), timeout_s=TIMEOUT_S, what=f"{client_id}'s"
        )
    assert {export.resource["principal"] for export in exports_of(exports, client_id)} == {"User:alice"}


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strangers(
    authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, CertificateFiles]:
    """Certificates that must be refused."""
    folder = tmp_path_factory.mktemp("strangers")
    ended = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=1)
    foreign = CertificateAuthority("Clients' CA")
    return {
        "foreign": foreign.issue(common_name="alice", client=True).write(folder, "foreign"),
        "expired": authority.issue(common_name="alice", client=True, not_after=ended).write(
            folder, "expired"
        ),
        "server's": authority.issue(common_name="alice").write(folder, "server"),
    }


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL"])
@pytest.mark.parametrize("whose", ["foreign", "expired", "server's"])
def test_an_invalid_certificate_is_refused(
    secured: GatewaySidecar,
    alice: CertificateFiles,
    strangers: dict[str, CertificateFiles],
    listener: str,
    whose: str,
) -> None:
    assert not is_served(secured.port(listener), alice.ca, strangers[whose])
    assert is_served(secured.port(listener), alice.ca, alice)


def test_a_required_certificate_cannot_be_omitted(secured: GatewaySidecar, alice: CertificateFiles) -> None:
    assert is_served(secured.port("SSL"), alice.ca)
    assert not is_served(secured.port("MUTUAL"), alice.ca)


def test_a_tls_listener_does_not_answer_plain_bytes(secured: GatewaySidecar) -> None:
    with Raw(secured.port("SSL")) as raw:
        raw.send(get_subscriptions())
        with contextlib.suppress(ConnectionResetError):
            answered = raw.read(1 << 16)
            assert answered[:1] in (b"", b"\x15")  # an alert of TLS, or nothing


@pytest.mark.parametrize("listener", ["STRANGER", "OTHER_NAME", "NOTHING_TO_SHOW", "WRONG_TO_SHOW"])
def test_an_untrusted_broker_gets_no_client(misconfigured: GatewaySidecar, listener: str) -> None:
    with contextlib.suppress(ConnectionRefusedError), Raw(misconfigured.port(listener)) as raw:
        assert asks(raw) is None
    wait_until(
        lambda: listener in {line["listener"] for line in misconfigured.logged("the broker does not answer")},
        timeout_s=TIMEOUT_S,
        what=f"a word in the log about {listener}",
    )


def test_incomplete_handshakes_do_not_block_a_listener(
    secured: GatewaySidecar, alice: CertificateFiles
) -> None:
    with contextlib.ExitStack() as waiting:
        for _ in range(50):
            idle = waiting.enter_context(
                contextlib.closing(socket.create_connection((LOOPBACK, secured.port("MUTUAL"))))
            )
            idle.sendall(b"\x16\x03\x01\x02\x00")
        assert is_served(secured.port("MUTUAL"), alice.ca, alice)
