"""`doctor` in front of real brokers: a good setup is proven, and each defect is found."""

from __future__ import annotations

import asyncio
import datetime
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from receiver.doctor import Access, Finding, Options, Report, State, examine
from tests.testbed.broker import SASL_USERS, KafkaBroker, Listener
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.clients import JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until
from tests.testbed.sidecar import Sidecar, config_for

TIMEOUT_S = 300.0
BEFORE = Options(before_start=True)


@pytest.fixture
def config(broker: KafkaBroker, collector: Collector, tmp_path: Path) -> dict[str, Any]:
    """A configuration without a defect: the broker's listener without logins."""
    made = config_for(broker, collector=collector)
    made["broker"] = {"id": "auto"}
    made["listeners"] = [listener for listener in made["listeners"] if listener["name"] == "CLIENT"]
    made["subscriptions"] = {"path": str(tmp_path / "subscriptions.db")}
    for plugin in made["plugins"]:
        plugin["spool"] = {"path": str(tmp_path / "spool")}
    return made


@pytest.fixture
def doctor(tmp_path: Path) -> Callable[..., Report]:
    """Examine a configuration."""

    def run(config: Mapping[str, Any], options: Options | None = None) -> Report:
        file = tmp_path / "receiver.yaml"
        file.write_text(yaml.safe_dump(dict(config)))
        return asyncio.run(examine(file, {}, options or Options()))

    return run


def found(report: Report, area: str, check: str) -> list[Finding]:
    return [finding for finding in report.findings if (finding.area, finding.check) == (area, check)]


def the(report: Report, area: str, check: str) -> Finding:
    (one,) = found(report, area, check)
    return one


def wrong(report: Report) -> set[tuple[str, str]]:
    """The areas and checks that are not proven."""
    return {
        (str(finding.area), finding.check)
        for finding in report.findings
        if finding.state in {State.FAILED, State.UNKNOWN}
    }


@pytest.mark.full
def test_a_good_setup_is_proven_before_and_after_the_start(
    config: dict[str, Any], doctor: Callable[..., Report], broker: KafkaBroker, tmp_path: Path
) -> None:
    before = doctor(config, BEFORE)
    assert (before.proven, wrong(before)) == (True, set())
    assert {item.seen for item in found(before, "ports", "port")} == {"free"}
    assert wrong(doctor(config)) == {("receiver", "runs")}
    with Sidecar(config):
        program, file = Path(sys.executable).with_name("kafka-telemetry"), tmp_path / "receiver.yaml"
        run = subprocess.run(
            [program, "doctor", "--json", "--config", file], capture_output=True, text=True, check=False
        )
        document = json.loads(run.stdout)
        assert (run.returncode, document["version"], document["proven"]) == (0, 1, True), (
            run.stdout + run.stderr
        )
        seen = {(finding["area"], finding["check"]): finding["seen"] for finding in document["findings"]}
        assert seen["broker", "identity"] == f"is node {broker.node_id} of cluster {broker.cluster_id}"
        assert seen["broker", "advertised"].endswith("which leads to the sidecar")
        assert "kafka-client-metrics.sh changes them" in seen["broker", "own_telemetry"]
        assert seen["ports", "port"] == "held by the running receiver"
        assert {
            ("listener", "offers_telemetry"),
            ("receiver", "ready"),
            ("plugin", "destination"),
        } <= seen.keys()
        assert wrong(doctor(config, BEFORE)) == {("receiver", "runs")}


def test_a_brokers_own_telemetry_is_found(
    config: dict[str, Any], doctor: Callable[..., Report], plugin_broker: KafkaBroker
) -> None:
    (listener,) = config["listeners"]
    own = {**listener, "upstream": f"{LOOPBACK}:{plugin_broker.client_port}"}
    plugin_broker.alter_client_metrics("own", ["a."], 1000)
    try:
        report = doctor({**config, "listeners": [own]}, BEFORE)
    finally:
        plugin_broker.delete_client_metrics("own")
    finding = the(report, "broker", "own_telemetry")
    assert finding.state is State.WARNING
    assert "its plugin gets nothing" in finding.seen
    assert "1 client metrics resource" in finding.seen
    assert "subscriptions.store" in finding.do


def test_defects_that_show_before_the_start(
    config: dict[str, Any], doctor: Callable[..., Report], broker: KafkaBroker
) -> None:
    wrong_id = doctor({**config, "broker": {"id": 7}}, BEFORE)
    assert wrong(wrong_id) == {("broker", "identity")}
    assert "broker.id is 7, but the broker's node id is 1" in the(wrong_id, "broker", "identity").seen

    (listener,) = config["listeners"]
    down = {**listener, "upstream": f"{LOOPBACK}:{free_port()}"}
    away = doctor({**config, "listeners": [down]}, BEFORE)
    assert wrong(away) == {("broker", "answers")}
    assert "refused" in the(away, "broker", "answers").seen

    nowhere = f"http://{LOOPBACK}:{free_port()}"
    (plugin,) = config["plugins"]
    unreachable = doctor({**config, "plugins": [{**plugin, "endpoint": nowhere}]}, BEFORE)
    assert wrong(unreachable) == {("plugin", "destination")}
    assert nowhere in the(unreachable, "plugin", "destination").seen

    with socket.create_server((LOOPBACK, int(listener["bind"].rpartition(":")[2]))):
        held = doctor(config, BEFORE)
        assert wrong(held) == {("ports", "port")}
        assert any("another program holds the port" in item.seen for item in found(held, "ports", "port"))

    login = Listener(name="SASL")
    sasl = {
        **listener,
        "upstream": f"{LOOPBACK}:{broker.port(login.name)}",
        "security_protocol": "SASL_PLAINTEXT",
    }
    unproven = doctor({**config, "listeners": [sasl]}, BEFORE)
    assert wrong(unproven) == {("broker", "identity")}
    assert "broker.login" in the(unproven, "broker", "identity").do
    assert "(KIP-1242)" in the(unproven, "broker", "identity").seen


def test_another_program_at_the_rest_address(
    config: dict[str, Any], doctor: Callable[..., Report], collector: Collector
) -> None:
    # The collector speaks HTTP/2 there, and is no receiver.
    report = doctor({**config, "rest": {"bind": collector.grpc_endpoint.removeprefix("http://")}})
    assert wrong(report) == {("receiver", "runs")}


@pytest.mark.full
def test_a_broker_that_advertises_its_own_port(
    plugin_broker: KafkaBroker, doctor: Callable[..., Report], tmp_path: Path
) -> None:
    config = config_for(plugin_broker, client_port=free_port())
    config["subscriptions"] = {"path": str(tmp_path / "subscriptions.db")}
    with Sidecar(config):
        report = doctor(config)
    assert wrong(report) == {("broker", "advertised")}
    assert "its own port" in the(report, "broker", "advertised").seen


@pytest.mark.full
def test_a_listener_that_rewrites_addresses(
    plugin_broker: KafkaBroker, doctor: Callable[..., Report], tmp_path: Path
) -> None:
    node_id = plugin_broker.node_id
    rewrite = {"host": LOOPBACK, "first_port": free_port() - node_id, "nodes": node_id + 1}
    listener: dict[str, Any] = {"addresses": "rewrite", "rewrite": rewrite}
    config = config_for(plugin_broker, client_port=free_port(), listeners={"CLIENT": listener})
    config |= {"broker": {"id": "auto"}, "subscriptions": {"path": str(tmp_path / "subscriptions.db")}}
    with Sidecar(config) as sidecar:

        def is_proven() -> bool:
            (shown,) = sidecar.http.get("/v1/listeners").json()["items"]
            return [node["broker"]["proven"] for node in shown["nodes"]] == [True]

        wait_until(is_proven, timeout_s=TIMEOUT_S, what="the proven node")
        report = doctor(config)
        assert (report.proven, wrong(report)) == (True, set())
        assert the(report, "broker", "identity").seen.startswith(f"names node {node_id} of cluster")
        assert the(report, "listener", "broker").seen == f"the receiver has proven node {node_id}"
        listener["rewrite"] = {**rewrite, "nodes": node_id}
        config = config_for(plugin_broker, client_port=free_port(), listeners={"CLIENT": listener})
        hidden = doctor(config | {"broker": {"id": "auto"}}, BEFORE)
        assert f"clients can't reach node {node_id}" in the(hidden, "broker", "identity").seen


@pytest.mark.full
def test_a_receiver_without_a_plugin(config: dict[str, Any], doctor: Callable[..., Report]) -> None:
    config["plugins"] = []
    with Sidecar(config):
        report = doctor(config)
    assert wrong(report) == {("listener", "offers_telemetry")}
    assert "no plugin takes metrics" in the(report, "listener", "offers_telemetry").seen


@pytest.mark.full
def test_subscriptions_and_clients(
    config: dict[str, Any], doctor: Callable[..., Report], broker: KafkaBroker
) -> None:
    broker.create_topic("doctor")
    with Sidecar(config) as sidecar:
        sidecar.put_subscription("nobody", ["org.apache.kafka."], 1000, {"client_id": "nobody-.*"})
        bootstrap = sidecar.bootstrap()
        never = {"enable.metrics.push": "false"}
        with (
            JavaClient(Mode.PRODUCER, bootstrap=bootstrap, topic="doctor", rate=50, client_id="good") as good,
            LibrdkafkaClient(
                Mode.CONSUMER, bootstrap=bootstrap, topic="doctor", client_id="never", properties=never
            ) as silent,
        ):
            good.wait_for_records(20)
            silent.wait_for_records(20)
            unmatched = doctor(config, Options(client="good"))
            assert "matches none of 1 known" in the(unmatched, "subscription", "matches").seen
            assert "'good' does not match 'nobody-.*'" in found(unmatched, "client", "match")[0].seen
            assert wrong(unmatched) == {("client", "match")}

            sidecar.put_subscription("all", ["*"], 1000)
            assert "asks again" not in the(doctor(config), "client", "all").seen
            never_pushes = doctor(config, Options(client="never"))
            assert wrong(never_pushes) == {("client", "asks")}
            assert "enable.metrics.push" in the(never_pushes, "client", "asks").do
            assert wrong(doctor(config, Options(client="stranger"))) == {("client", "known")}

            with LibrdkafkaClient(
                Mode.CONSUMER, bootstrap=bootstrap, topic="doctor", client_id="asked"
            ) as asked:
                asked.wait_for_records(20)
                wait_until(
                    lambda: any(
                        item["client_id"] == "asked" and item["pushes"]
                        for item in sidecar.http.get("/v1/clients").json()["items"]
                    ),
                    timeout_s=TIMEOUT_S,
                    what="the first push",
                )
                report = doctor(config, Options(client="asked"))
                assert (report.proven, wrong(report)) == (True, set())
                assert "asked by all" in the(report, "client", "pushes").seen


@pytest.mark.full
def test_tls_to_clients_and_to_the_broker(
    doctor: Callable[..., Report], collector: Collector, tmp_path: Path
) -> None:
    authority, other = CertificateAuthority(), CertificateAuthority("Another CA")
    files = authority.issue().write(tmp_path, "server")
    other_files = other.issue().write(tmp_path, "other")
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    expired = authority.issue(not_after=past).write(tmp_path, "expired")
    ssl = Listener(name="SECURE", security_protocol="SSL", advertised_port=free_port())
    with KafkaBroker(listeners=[ssl], certificate=files) as broker:
        config = config_for(broker, collector=collector)
        config["subscriptions"] = {"path": str(tmp_path / "subscriptions.db")}
        config["plugins"][0]["delivery"] = "memory"
        (listener,) = (item for item in config["listeners"] if item["name"] == "SECURE")
        listener["tls"] = {"cert_file": str(files.chain), "key_file": str(files.key)}
        listener["upstream_tls"] = {"ca_file": str(files.ca)}
        config["listeners"] = [listener]
        with Sidecar(config):
            assert wrong(doctor(config)) == set()
            trusted = Options(access=Access(ca=files.ca))
            assert wrong(doctor(config, trusted)) == set()
            distrusted = doctor(config, Options(access=Access(ca=other_files.ca)))
            assert ("tls", "chain") in wrong(distrusted)
            assert ("listener", "answers") in wrong(distrusted)
            # The running receiver shows another certificate than the file that is to be used.
            shown = {"cert_file": str(other_files.chain), "key_file": str(other_files.key)}
            replaced = doctor({**config, "listeners": [{**listener, "tls": shown}]})
            assert wrong(replaced) == {("listener", "answers")}
        asked = {**listener["tls"], "client_ca_file": str(files.ca), "client_auth": "required"}
        config["listeners"] = [{**listener, "tls": asked, "proxy_protocol": {"from": ["127.0.0.0/8"]}}]
        with Sidecar(config):
            unshown = the(doctor(config), "listener", "answers")
            assert (unshown.state, "--client-certificate" in unshown.do) == (State.UNKNOWN, True)
            client = authority.issue(common_name="doctor", client=True).write(tmp_path, "client")
            access = Access(certificate=client.chain, key=client.key)
            proven = doctor(config, Options(access=access))
            assert wrong(proven) == set()
            subjects = {item.subject for item in found(proven, "tls", "dates")}
            assert f"broker of listener SECURE at {listener['upstream']}" in subjects
        plain = doctor({**config, "listeners": [{**listener, "upstream_tls": None}]}, BEFORE)
        assert "set listeners[].upstream_tls" in the(plain, "broker", "answers").do
        untrusted = {**listener, "upstream_tls": {"ca_file": str(other_files.ca)}}
        report = doctor({**config, "listeners": [untrusted]}, BEFORE)
        assert wrong(report) == {("broker", "answers")}
        assert "certificate verify failed" in the(report, "broker", "answers").seen
        assert "upstream_tls.ca" in the(report, "broker", "answers").do
        ended = {"cert_file": str(expired.chain), "key_file": str(expired.key)}
        report = doctor({**config, "listeners": [{**listener, "tls": ended}]}, BEFORE)
        assert wrong(report) == {("tls", "dates")}
        mixed = {"cert_file": str(files.chain), "key_file": str(expired.key)}
        report = doctor({**config, "listeners": [{**listener, "tls": mixed}]}, BEFORE)
        assert wrong(report) == {("tls", "files")}


@pytest.mark.full
def test_a_login_of_the_sidecar(
    doctor: Callable[..., Report], broker: KafkaBroker, config: dict[str, Any], tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(SASL_USERS["bob"])
    (listener,) = (item for item in config_for(broker)["listeners"] if item["name"] == "SASL")
    config["listeners"] = [listener]
    config["broker"] = {"id": "auto", "login": {"username": "bob", "password": {"file": str(password)}}}
    with Sidecar(config):
        report = doctor(config)
        assert wrong(report) == set()
    password.write_text("wrong-secret")
    refused = doctor(config, BEFORE)
    assert wrong(refused) == {("broker", "login"), ("broker", "identity")}
    assert "SASL_AUTHENTICATION_FAILED" in the(refused, "broker", "login").seen
    assert "wrong-secret" not in json.dumps(refused.document())
