"""An operator's mistakes at a real Collector cost no push, and the sidecar says what waits."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    config,
    error_of_push,
    get_subscriptions,
    push,
    read_get,
)
from tests.testbed.collector import Collector
from tests.testbed.files import replace
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker
from tests.unit.host.support import FAST, wait_for
from tests.unit.plugins.destinations import (
    Certificates,
    HttpDestination,
    Reply,
    http_destination,
    make_certificates,
)
from tests.unit.plugins.support import PAYLOADS, client_push

#: As many attempts as ten minutes have with the default back-off, and more.
ATTEMPTS: Final = 40
PUSH: Final = (PAYLOADS / "java44-producer-star-01.bin").read_bytes()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of another authority."""
    return make_certificates(tmp_path_factory.mktemp("others"))


class Gate:
    """A TLS server that asks for a token, in front of a Collector, whose answers it passes on."""

    def __init__(self, server: HttpDestination, collector: Collector) -> None:
        self.token = "first-token"
        self.closes = False
        self._server = server
        self._url = f"{collector.http_endpoint}/v1/metrics"
        server.answer = self._answer

    def _answer(self, body: bytes) -> Reply | None:
        if self.closes:
            return None
        if self._server.headers[-1].get("authorization") != self.token:
            return Reply(401, b"who are you?", {"content-type": "text/plain"})
        headers = {"content-type": "application/x-protobuf"}
        with urllib.request.urlopen(urllib.request.Request(self._url, body, headers)) as answer:
            return Reply(answer.status, answer.read(), {"content-type": answer.headers["content-type"]})


def pushes(sidecar: GatewaySidecar, count: int) -> None:
    """Push from new client instances."""
    for _ in range(count):
        with Raw(sidecar.port()) as raw:
            _, instance, subscription_id = read_get(raw.exchange(get_subscriptions()))
            assert error_of_push(raw.exchange(push(instance, subscription_id, PUSH))) == 0


def plugin(sidecar: GatewaySidecar) -> dict[str, Any]:
    (item,) = sidecar.http.get("/v1/plugins").json()["items"]
    assert isinstance(item, dict)
    return item


def arrived(collector: Collector) -> int:
    """How many client instances' pushes the Collector has."""
    return len({metric.resource["client_instance_id"] for metric in collector.exports()})


@pytest.mark.parametrize(
    "delivery",
    [
        "memory",  # for as long as retry.max_elapsed_s, 300 s by default
        pytest.param("spool_when_behind", marks=pytest.mark.full),
        pytest.param("spool_always", marks=pytest.mark.full),
    ],
)
def test_401_a_new_authority_and_a_new_token_cost_no_push(
    certificates: Certificates, others: Certificates, tmp_path: Path, delivery: str
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.cert("server"), certificates.key("server"))
    ca, token = tmp_path / "ca.pem", tmp_path / "token"
    ca.write_bytes(certificates.ca.read_bytes())
    token.write_text("first-token\n")
    with Collector() as collector, ScriptedBroker() as broker, http_destination(context) as server:
        gate = Gate(server, collector)
        entry = {
            "type": "otlp",
            "protocol": "http",
            "endpoint": f"https://127.0.0.1:{server.port}",
            "headers": {"authorization": {"file": str(token)}},
            "tls": {"ca_file": str(ca)},
            "retry": {"initial_ms": 10, "max_ms": 50},
            "batch": {"linger_ms": 0},
            "delivery": delivery,
        }
        if delivery != "memory":
            entry["spool"] = {"path": str(tmp_path / "spool")}
        with GatewaySidecar(config(broker.port, plugins=[entry])) as sidecar:
            sidecar.put_subscription("all", ["*"], 60_000)
            pushes(sidecar, 1)
            collector.wait_for(lambda _: arrived(collector) == 1)

            gate.token = "second-token"
            pushes(sidecar, 5)
            wait_until(
                lambda: plugin(sidecar)["consecutive_failures"] >= ATTEMPTS,
                timeout_s=TIMEOUT_S,
                what="attempts",
            )
            shown = plugin(sidecar)
            assert shown["circuit"] != "closed"
            assert shown["last_error"] == "HTTP 401: who are you?"
            assert shown["waiting"]["pushes"] == 5
            assert shown["waiting"]["bytes"] > 0
            (warning,) = sidecar.warnings()
            assert warning.startswith("plugin otlp has delivered nothing for ")
            assert "5 pushes (" in warning
            line = sidecar.awaited("the destination takes no pushes, they wait")[0]
            assert (line["error"], line["level"]) == ("HTTP 401: who are you?", "warning")

            # The server's certificate is another authority's from now on.
            context.load_cert_chain(others.cert("server"), others.key("server"))
            gate.closes = True
            wait_until(
                lambda: "certificate verify failed" in plugin(sidecar)["last_error"],
                timeout_s=TIMEOUT_S,
                what="an unknown authority",
            )
            gate.closes = False
            replace(token, b"second-token\n")
            replace(ca, others.ca.read_bytes())
            collector.wait_for(lambda _: arrived(collector) == 6)
            wait_until(lambda: plugin(sidecar)["exported"] == 6, timeout_s=TIMEOUT_S, what="all pushes")
            shown = plugin(sidecar)
            assert sum(shown["dropped"].values()) == 0
            assert (shown["circuit"], shown["waiting"]["pushes"]) == ("closed", 0)
            assert sidecar.warnings() == []
            assert "token" not in json.dumps(shown)


class TlsCollector(Collector):
    """A Collector that asks for client certificates."""

    certificates: Certificates

    def _config(self) -> dict[str, object]:
        config: Any = super()._config()
        tls = {
            "cert_file": str(self.certificates.cert("server")),
            "key_file": str(self.certificates.key("server")),
            "client_ca_file": str(self.certificates.ca),
        }
        for protocol in config["receivers"]["otlp"]["protocols"].values():
            protocol["tls"] = tls
        assert isinstance(config, dict)
        return config


@contextmanager
def running(entry: dict[str, Any]) -> Iterator[PluginHost]:
    host = PluginHost(load_plugins([{**FAST, **entry}]))
    host.start()
    try:
        yield host
    finally:
        host.stop(20)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_collector_with_all_certificates_replaced_gets_every_push(
    certificates: Certificates, others: Certificates, tmp_path: Path, protocol: str
) -> None:
    files = {"ca_file": "ca.pem", "cert_file": "client.pem", "key_file": "client.key"}

    def copy(source: Certificates) -> None:
        for name in files.values():
            replace(tmp_path / name, (source.folder / name).read_bytes())

    copy(certificates)
    collector = TlsCollector()
    collector.certificates = certificates
    with collector:
        port = collector.grpc_port if protocol == "grpc" else collector.http_port
        entry = {
            "type": "otlp",
            "protocol": protocol,
            "endpoint": f"https://127.0.0.1:{port}",
            "tls": {key: str(tmp_path / name) for key, name in files.items()},
            "timeout_ms": 2000,
        }
        with running(entry) as host:
            host.offer(client_push())
            wait_for(lambda: host.statistics()[0].exported_pushes == 1)
            collector.stop()
            collector.certificates = others
            collector.start()
            for _ in range(3):
                host.offer(client_push())
            wait_for(lambda: host.statistics()[0].consecutive_failures >= 3)
            copy(others)
            wait_for(lambda: host.statistics()[0].exported_pushes == 4)
            assert sum(host.statistics()[0].dropped.values()) == 0


@pytest.mark.full
def test_a_wrong_path_at_a_collector_costs_no_push(tmp_path: Path) -> None:
    spool = {"path": str(tmp_path / "spool"), "after_ms": 0}
    right: dict[str, Any] = {
        "type": "otlp",
        "protocol": "http",
        "delivery": "spool_when_behind",
        "spool": spool,
    }
    with Collector() as collector:
        right["endpoint"] = collector.http_endpoint
        with running(right | {"endpoint": f"{collector.http_endpoint}/v1/wrong"}) as host:
            for _ in range(3):
                host.offer(client_push())
            wait_for(lambda: host.statistics()[0].consecutive_failures >= 3)
            assert (host.statistics()[0].last_error or "").startswith("HTTP 404")
            assert sum(host.statistics()[0].dropped.values()) == 0
            host.replace(load_plugins([{**FAST, **right}]), 20)
            wait_for(lambda: host.statistics()[0].exported_pushes == 3)
            assert sum(host.statistics()[0].dropped.values()) == 0
