"""The principal of every client, protocol and mechanism arrives with its metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tests.integration.gateway.support import GatewaySidecar
from tests.integration.security.support import (
    CLAIM,
    TIMEOUT_S,
    TOPIC,
    exports_of,
    login,
)
from tests.testbed.broker import SASL_USERS, KafkaBroker
from tests.testbed.certificates import CertificateFiles
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.ports import LOOPBACK
from tests.testbed.security import Login, Mechanism, Security, unsecured_token

KINDS: tuple[type[Client], ...] = (JavaClient, LibrdkafkaClient, FranzClient)
JAVA, LIBRDKAFKA, FRANZ = KINDS
ANONYMOUS, ALICE = "User:ANONYMOUS", "User:alice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One client.

    Attributes:
        kind: Its library.
        listener: Where it connects.
        principal: The expected principal.
        mechanism: Its SASL mechanism.
        certificate: Whether it shows a certificate.
        token: Whether it logs in with a delegation token.
        claim: The claim of its OAUTHBEARER token that names the user.
    """

    kind: type[Client]
    listener: str
    principal: str = ALICE
    mechanism: Mechanism | None = None
    certificate: bool = False
    token: bool = False
    claim: str = "sub"

    @property
    def client_id(self) -> str:
        words = (
            self.kind.language,
            self.listener,
            self.mechanism,
            self.token and "token",
            self.certificate and "certificate",
        )
        return "-".join(str(word) for word in words if word)


LOGINS: tuple[tuple[type[Client], str, Mechanism], ...] = (
    (JAVA, "SASL", "PLAIN"),
    (JAVA, "SASL", "OAUTHBEARER"),
    (JAVA, "SASL_SSL", "SCRAM-SHA-512"),
    (JAVA, "SASL_TLS", "SCRAM-SHA-256"),
    (LIBRDKAFKA, "SASL", "SCRAM-SHA-256"),
    (LIBRDKAFKA, "SASL", "OAUTHBEARER"),
    (LIBRDKAFKA, "SASL_SSL", "PLAIN"),
    (LIBRDKAFKA, "SASL_TLS", "SCRAM-SHA-512"),
    (FRANZ, "SASL", "PLAIN"),
    (FRANZ, "SASL", "SCRAM-SHA-512"),
    (FRANZ, "SASL_SSL", "OAUTHBEARER"),
    (FRANZ, "SASL_TLS", "SCRAM-SHA-256"),
)

CASES = {
    case.client_id: case
    for case in (
        *(Case(kind=kind, listener="CLIENT", principal=ANONYMOUS) for kind in KINDS),
        *(Case(kind=kind, listener="SSL", certificate=True) for kind in KINDS),
        # No certificate where one is requested but optional.
        Case(kind=LIBRDKAFKA, listener="SSL", principal=ANONYMOUS),
        # TLS on both sides, each with its own CA; Kafka's default principal of a certificate.
        *(
            Case(kind=kind, listener="MUTUAL", principal="User:CN=alice,O=Example", certificate=True)
            for kind in KINDS
        ),
        *(Case(kind=kind, listener=listener, mechanism=mechanism) for kind, listener, mechanism in LOGINS),
        Case(kind=FRANZ, listener="CLAIM", mechanism="OAUTHBEARER", claim=CLAIM),
        *(Case(kind=kind, listener="SASL", mechanism="SCRAM-SHA-256", token=True) for kind in (JAVA, FRANZ)),
    )
}


@pytest.fixture(scope="module")
def token(secured_broker: KafkaBroker) -> Login:
    return secured_broker.create_delegation_token("SASL", login("PLAIN"))


@pytest.fixture(scope="module")
def fleet(secured: GatewaySidecar, alice: CertificateFiles, token: Login) -> Iterator[dict[str, Client]]:
    """All clients, which run at the same time."""
    tls = ("SSL", "MUTUAL", "SASL_SSL", "SASL_TLS")

    def security(case: Case) -> Security:
        how = None
        if case.token:
            how = token
        elif case.mechanism is not None:
            how = replace(login(case.mechanism), claim=case.claim)
        return Security(
            login=how,
            ca=alice.ca if case.listener in tls else None,
            certificate=alice if case.certificate else None,
        )

    with contextlib.ExitStack() as running:
        yield {
            client_id: running.enter_context(
                case.kind(
                    Mode.PRODUCER,
                    bootstrap=secured.bootstrap(case.listener),
                    topic=TOPIC,
                    client_id=client_id,
                    security=security(case),
                )
            )
            for client_id, case in CASES.items()
        }


@pytest.mark.parametrize("client_id", CASES)
def test_the_principal_arrives_with_the_metrics(
    secured: GatewaySidecar,
    shared_collector: Collector,
    fleet: dict[str, Client],
    token: Login,
    client_id: str,
) -> None:
    case, client = CASES[client_id], fleet[client_id]
    client.wait_for_records(5, timeout_s=TIMEOUT_S)
    exports = shared_collector.wait_for(
        lambda exports: bool(exports_of(exports, client_id)), timeout_s=TIMEOUT_S, what=f"{client_id}'s"
    )
    protocols = {entry["name"]: entry["security_protocol"] for entry in secured.config["listeners"]}
    expected = {
        "principal": f"DelegationToken:{token.user}" if case.token else case.principal,
        "listener": case.listener,
        "security_protocol": protocols[case.listener],
        "client_source_address": LOOPBACK,
        **({"sasl_mechanism": case.mechanism} if case.mechanism else {}),
    }
    for export in exports_of(exports, client_id):
        assert export.resource.items() >= expected.items()
        assert ("sasl_mechanism" in export.resource) == (case.mechanism is not None)
    assert client.errors == []


def test_no_password_or_token_is_in_a_log_or_an_answer(
    secured: GatewaySidecar, fleet: dict[str, Client], token: Login
) -> None:
    secrets = [*SASL_USERS.values(), token.password, unsecured_token(login("OAUTHBEARER"))[:10]]
    shown = secured.log_text() + "".join(
        secured.http.get(path, params={"limit": 1000}).text for path in ("/v1/connections", "/v1/clients")
    )
    shown += secured.http.get("/metrics").text
    assert all(client.running for client in fleet.values())
    assert [secret for secret in secrets if secret in shown] == []
