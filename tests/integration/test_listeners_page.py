"""The first configuration of docs/listeners.md, in front of a real broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.testbed.broker import SASL_USERS, KafkaBroker, Listener
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.clients import LibrdkafkaClient, Mode
from tests.testbed.ports import free_port
from tests.testbed.process import wait_until
from tests.testbed.security import Login, Security, SecurityProtocol
from tests.testbed.sidecar import Sidecar, config_for

PAGE: Final = Path(__file__).parents[2] / "docs" / "listeners.md"
NAMES: Final = ("CLIENT", "SASL", "SSL", "SECURE", "LB")

WITHIN_S: Final = 120.0

#: What the broker speaks behind the page's listeners.
PROTOCOLS: Final[dict[str, SecurityProtocol]] = {"SASL": "SASL_PLAINTEXT", "SECURE": "SASL_SSL"}


def entries() -> list[dict[str, Any]]:
    """Return the listeners of the page's first block."""
    block = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    listed = yaml.safe_load(block[1])["listeners"]
    assert isinstance(listed, list)
    return listed


@pytest.mark.full
def test_clients_of_every_listener_of_the_page_produce_and_push(tmp_path: Path) -> None:
    servers, clients, brokers = (CertificateAuthority(name) for name in ("Servers", "Clients", "Brokers"))
    server = servers.issue().write(tmp_path, "of-server")
    client = clients.issue(common_name="orders", client=True).write(tmp_path, "of-client")
    broker_files = brokers.issue().write(tmp_path, "of-broker")
    sidecar_files = brokers.issue(common_name="sidecar", client=True).write(tmp_path, "of-sidecar")
    files = {
        "server.crt": server.chain,
        "server.key": server.key,
        "ca.pem": client.ca,
        "broker-ca.pem": broker_files.ca,
        "sidecar.crt": sidecar_files.chain,
        "sidecar.key": sidecar_files.key,
    }
    page = {entry["name"]: entry for entry in entries()}
    assert tuple(page) == NAMES
    assert len({entry["upstream"] for entry in page.values()}) == len(NAMES)
    broker = KafkaBroker(
        advertised_client_port=free_port(),
        listeners=[
            Listener(
                name=name,
                security_protocol=PROTOCOLS.get(name, "PLAINTEXT"),
                client_auth="required" if name == "SECURE" else "none",
                advertised_port=free_port(),
            )
            for name in NAMES[1:]
        ],
        certificate=broker_files,
    )
    login = Login(mechanism="PLAIN", user="alice", password=SASL_USERS["alice"])
    security = {
        "CLIENT": Security(),
        "SASL": Security(login=login),
        "SSL": Security(ca=server.ca, certificate=client),
        "SECURE": Security(login=login, ca=server.ca),
        "LB": Security(),
    }
    with broker:
        config = config_for(broker)
        for entry in config["listeners"]:
            shown = yaml.safe_load(yaml.safe_dump(page[entry["name"]]))
            for section in ("tls", "upstream_tls"):
                of_tls = shown.get(section, {})
                of_tls |= {key: str(files[of_tls[key]]) for key in of_tls if key.endswith("_file")}
            entry |= {key: value for key, value in shown.items() if key not in {"bind", "upstream"}}
            entry.setdefault("security_protocol", "PLAINTEXT")
        assert [entry["name"] for entry in config["listeners"]] == list(NAMES)
        with Sidecar(config) as sidecar:
            sidecar.put_subscription("all", ["*"], 60_000)
            broker.create_topic("listeners")
            principals = {}
            for name in NAMES:
                with LibrdkafkaClient(
                    Mode.PRODUCER,
                    bootstrap=sidecar.bootstrap(name),
                    topic="listeners",
                    client_id=name,
                    security=security[name],
                ) as producer:
                    producer.wait_for_records(5)
                    connections = sidecar.http.get("/v1/connections").json()["items"]
                    of_client = [each for each in connections if each["client_id"] == name]
                    assert {each["listener"] for each in of_client} == {name}
                    principals[name] = {each["principal"] for each in of_client}
            assert principals == {
                "CLIENT": {"User:ANONYMOUS"},
                "SASL": {"User:alice"},
                "SSL": {"User:orders"},
                "SECURE": {"User:alice"},
                "LB": {"User:ANONYMOUS"},
            }
            # Each pushes once when it ends.
            wait_until(
                lambda: sidecar.http.get("/v1/plugins").json()["items"][0]["exported"] == len(NAMES),
                timeout_s=WITHIN_S,
                what="a push of each client",
            )
