"""Clients keep their principal when they re-authenticate (KIP-368)."""

from __future__ import annotations

import contextlib

from tests.integration.gateway.support import GatewaySidecar
from tests.integration.security.support import INTERVAL_MS, TIMEOUT_S, TOPIC, exports_of, login
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.process import wait_until
from tests.testbed.security import Login, Security

LOGINS: dict[type[Client], Login] = {
    JavaClient: login("SCRAM-SHA-256", "alice"),
    LibrdkafkaClient: login("PLAIN", "bob"),
    FranzClient: login("OAUTHBEARER", "carol"),
}


def renewed(sidecar: GatewaySidecar, mechanism: str) -> float:
    """Return the number of re-authentications on REAUTH."""
    return sidecar.value("authenticated_total", listener="REAUTH", mechanism=mechanism, outcome="renewed")


def test_a_client_keeps_its_principal_over_reauthentications(
    secured: GatewaySidecar, shared_collector: Collector
) -> None:
    # franz-go pushes only counters that have changed. Connections stay, so ask for more metrics.
    secured.put_subscription("again", ["*"], INTERVAL_MS, {"client_id": "again-.*"})
    with contextlib.ExitStack() as running:
        clients = {
            running.enter_context(
                kind(
                    Mode.PRODUCER,
                    bootstrap=secured.bootstrap("REAUTH"),
                    topic=TOPIC,
                    client_id=f"again-{kind.language}",
                    security=Security(login=how),
                )
            ): how
            for kind, how in LOGINS.items()
        }
        for client, how in clients.items():
            wait_until(
                lambda how=how: renewed(secured, how.mechanism) >= 2,  # type: ignore[misc]
                timeout_s=TIMEOUT_S,
                what=f"{client.client_id} to log in a third time",
            )
        shared_collector.forget()
        for client, how in clients.items():
            client.wait_for_records(client.records + 5)
            exports = shared_collector.wait_for(
                lambda exports, client=client: bool(exports_of(exports, client.client_id)),  # type: ignore[misc]
                timeout_s=TIMEOUT_S,
                what=f"{client.client_id}'s",
            )
            assert {export.resource["principal"] for export in exports_of(exports, client.client_id)} == {
                f"User:{how.user}"
            }
