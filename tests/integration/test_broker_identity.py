"""The sidecar learns which real broker is behind each listener, and says if it is another one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from receiver.doctor import Options, State, examine
from tests.integration.gateway.support import TIMEOUT_S, GatewaySidecar
from tests.testbed.broker import SASL_USERS, KafkaBroker, Listener
from tests.testbed.clients import JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.ports import free_port
from tests.testbed.process import wait_until
from tests.testbed.security import Login, Security
from tests.testbed.sidecar import config_for

pytestmark = pytest.mark.full


def info(sidecar: GatewaySidecar, listener: str) -> dict[str, str]:
    """The labels of a listener's kafka_telemetry_broker_info."""
    for line in sidecar.http.get("/metrics").text.splitlines():
        if line.startswith("kafka_telemetry_broker_info{") and f'listener="{listener}"' in line:
            labels = line.partition("{")[2].partition("}")[0]
            return dict(part.replace('"', "").split("=", 1) for part in labels.split(","))
    return {}


def plugins(collector: Collector) -> dict[str, list[dict[str, str]]]:
    return {"plugins": [{"type": "otlp", "endpoint": collector.grpc_endpoint}]}


def labelled(collector: Collector) -> set[tuple[str, str]]:
    """The listeners and node ids that pushes are labelled with."""
    return {
        (str(export.resource["listener"]), str(export.resource["broker_id"]))
        for export in collector.exports()
    }


def is_proven(sidecar: GatewaySidecar, listener: str, broker: KafkaBroker) -> bool:
    return info(sidecar, listener) == {
        "listener": listener,
        "broker_id": str(broker.node_id),
        "cluster_id": broker.cluster_id,
        "proven": "true",
    }


def test_a_wrong_node_id_is_reported_and_costs_no_record() -> None:
    with KafkaBroker(advertised_client_port=free_port()) as broker:
        broker.create_topic("wrong")
        config = {**config_for(broker), "broker": {"id": 7}}
        with GatewaySidecar(config, wait_for_broker=False) as sidecar:
            wait_until(lambda: "broker.id is 7" in sidecar.readiness()[1], timeout_s=120, what="the problem")
            status, reason = sidecar.readiness()
            assert status == 503
            assert "broker.id is 7, but the broker's node id is 1" in reason
            with JavaClient(Mode.PRODUCER, bootstrap=sidecar.bootstrap(), topic="wrong", rate=50) as java:
                java.wait_for_records(100)
                assert java.errors == []
            assert is_proven(sidecar, "CLIENT", broker)
            sidecar.config = {**config, "broker": {"id": "auto"}}
            sidecar.reload()
            wait_until(lambda: sidecar.readiness()[0] == 200, timeout_s=TIMEOUT_S, what="readiness")


def test_one_receiver_serves_two_brokers() -> None:
    others = {"node_id": 5, "cluster_id": "another-clusterAAAAAAA"}
    with (
        KafkaBroker(advertised_client_port=free_port()) as one,
        KafkaBroker(advertised_client_port=free_port(), **others) as two,  # type: ignore[arg-type]
    ):
        config = config_for(one)
        del config["broker"]
        (listener,) = config_for(two)["listeners"]
        config["listeners"].append({**listener, "name": "SECOND"})
        for broker in (one, two):
            broker.create_topic("both")
        with Collector() as collector, GatewaySidecar(config | plugins(collector)) as sidecar:
            sidecar.put_subscription("all", ["*"], 1000)
            for name, broker in (("CLIENT", one), ("SECOND", two)):
                wait_until(
                    lambda name=name, broker=broker: is_proven(sidecar, name, broker),  # type: ignore[misc]
                    timeout_s=TIMEOUT_S,
                    what=f"the broker behind {name}",
                )
                bootstrap = sidecar.bootstrap(name)
                with (
                    JavaClient(Mode.PRODUCER, bootstrap=bootstrap, topic="both", rate=50) as java,
                    LibrdkafkaClient(Mode.CONSUMER, bootstrap=bootstrap, topic="both") as reader,
                ):
                    java.wait_for_records(50)
                    reader.wait_for_records(50)
                    assert sidecar.connections(name)
                    wait_until(
                        lambda name=name, broker=broker: (  # type: ignore[misc]
                            (name, str(broker.node_id)) in labelled(collector)
                        ),
                        timeout_s=TIMEOUT_S,
                        what=f"pushes of {name}",
                    )
                    assert java.errors == []
            assert labelled(collector) == {("CLIENT", str(one.node_id)), ("SECOND", str(two.node_id))}
            for broker in (one, two):
                assert "InvalidRequestException" not in broker.log_text()


def test_a_broker_that_hangs_is_not_ready_although_nobody_connects() -> None:
    with (
        KafkaBroker(advertised_client_port=free_port()) as broker,
        GatewaySidecar(config_for(broker)) as sidecar,
    ):
        assert sidecar.readiness()[0] == 200
        broker.pause()
        wait_until(lambda: sidecar.readiness()[0] == 503, timeout_s=TIMEOUT_S, what="the hung broker")
        assert "no response within" in sidecar.readiness()[1]
        broker.resume()
        wait_until(lambda: sidecar.readiness()[0] == 200, timeout_s=TIMEOUT_S, what="readiness")


def test_crossed_upstreams_are_found_and_their_correction_is_right(tmp_path: Path) -> None:
    """Two brokers of a cluster, each behind the listener that the other one advertises."""
    with (
        KafkaBroker(advertised_client_port=free_port()) as one,
        KafkaBroker(node_id=2, controller=one, advertised_client_port=free_port()) as two,
    ):
        config = config_for(one)
        del config["broker"]
        (first,) = config["listeners"]
        (second,) = config_for(two)["listeners"]
        second["name"] = "SECOND"
        right = {"CLIENT": first["upstream"], "SECOND": second["upstream"]}
        first["upstream"], second["upstream"] = second["upstream"], first["upstream"]
        config["listeners"] = [first, second]
        file = tmp_path / "receiver.yaml"
        with GatewaySidecar(config) as sidecar:
            wait_until(lambda: len(sidecar.warnings()) == 2, timeout_s=TIMEOUT_S, what="both warnings")
            views = sidecar.http.get("/v1/listeners").json()["items"]
            shown = {view["name"]: view["crossed"] for view in views}
            assert sorted(shown.values()) == sorted(sidecar.warnings())
            logged = sidecar.awaited("upstreams of listeners are crossed", 2)
            assert {line["listener"] for line in logged} == right.keys()
            assert [sidecar.value("crossed", listener=name) for name in right] == [1, 1]
            for options in (Options(), Options(before_start=True)):
                file.write_text(yaml.safe_dump(config))
                report = asyncio.run(examine(file, {}, options))
                found = [each for each in report.findings if each.check == "advertised"]
                assert {each.state for each in found} == {State.FAILED}
                assert {each.do for each in found} == {
                    f"set upstream of listener {name} to {upstream}" for name, upstream in right.items()
                }
            # The correction that it gives is the right one.
            for listener in config["listeners"]:
                listener["upstream"] = shown[listener["name"]].rpartition(" to ")[2]
                assert listener["upstream"] == right[listener["name"]]
            sidecar.reload()
            wait_until(lambda: not sidecar.warnings(), timeout_s=TIMEOUT_S, what="the end of the warnings")
            assert [sidecar.value("crossed", listener=name) for name in right] == [0, 0]


def test_a_listener_with_logins_learns_what_is_likely_from_a_client() -> None:
    logins = [Listener(name="LOGIN", security_protocol="SASL_PLAINTEXT", advertised_port=free_port())]
    with KafkaBroker(advertised_client_port=free_port(), listeners=logins) as broker:
        broker.create_topic("login")
        config = config_for(broker)
        config["broker"] = {"id": "auto"}
        config["plugins"] = [{"type": "console"}]
        with GatewaySidecar(config) as sidecar:
            sidecar.put_subscription("all", ["*"], 1000)
            login = Login(mechanism="PLAIN", user="alice", password=SASL_USERS["alice"])
            with JavaClient(
                Mode.PRODUCER,
                bootstrap=sidecar.bootstrap("LOGIN"),
                topic="login",
                rate=50,
                security=Security(login=login),
            ) as java:
                java.wait_for_records(20)
                # A broker proves its node id to nobody who has not logged in.
                likely = {
                    "listener": "LOGIN",
                    "broker_id": str(broker.node_id),
                    "cluster_id": broker.cluster_id,
                    "proven": "false",
                }
                wait_until(lambda: info(sidecar, "LOGIN") == likely, timeout_s=TIMEOUT_S, what="the broker")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_listener_with_logins_proves_its_broker_by_a_login(tmp_path: Path, mechanism: str) -> None:
    logins = [Listener(name="LOGIN", security_protocol="SASL_PLAINTEXT", advertised_port=free_port())]
    password = tmp_path / "password"
    password.write_text("wrong-secret\n")
    with KafkaBroker(advertised_client_port=free_port(), listeners=logins) as broker:
        config = config_for(broker)
        login = {"mechanism": mechanism, "username": "bob", "password": {"file": str(password)}}
        config["broker"] = {"id": "auto", "login": login}
        with GatewaySidecar(config) as sidecar:
            # A refused login is reported, and the listener stays ready for clients.
            sidecar.wait_for_log("the sidecar can't log in to ask the broker for its node id")
            sidecar.wait_for_log("the broker refuses the login with SASL_AUTHENTICATION_FAILED")
            assert sidecar.readiness()[0] == 200
            assert info(sidecar, "LOGIN").get("proven") != "true"
            password.write_text(SASL_USERS["bob"] + "\n")
            sidecar.config = {**config, "broker": {**config["broker"], "cluster_id": broker.cluster_id}}
            sidecar.reload()
            wait_until(
                lambda: is_proven(sidecar, "LOGIN", broker), timeout_s=TIMEOUT_S, what="the proven broker"
            )
            for secret in (SASL_USERS["bob"], "wrong-secret"):
                assert secret not in sidecar.log_text()


def test_clients_that_pass_by_are_reported() -> None:
    with (
        KafkaBroker() as broker,  # it advertises its own port
        GatewaySidecar(config_for(broker, client_port=free_port())) as sidecar,
    ):
        sidecar.wait_for_log("clients pass by the sidecar")
        wait_until(
            lambda: sidecar.value("bypassed", listener="CLIENT") == 1, timeout_s=TIMEOUT_S, what="the metric"
        )
        (listener,) = sidecar.http.get("/v1/listeners").json()["items"]
        assert listener["broker"]["advertised"] == broker.bootstrap
        assert "its own port" in listener["bypass"]
