"""Real clients that are asked for less: they push too much, or a destination stays behind."""

from __future__ import annotations

import time
from typing import Any

import pytest

from receiver.telemetry.control.offenders import STANDARD_METRICS
from tests.integration.gateway.support import GatewaySidecar
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.process import wait_until
from tests.testbed.sidecar import config_for

TOPIC = "asked-for-less"
INTERVAL_MS = 500
TIMEOUT_S = 300.0

#: A Java consumer's push of everything has some 3,000 bytes, one of the standard metrics 600.
MAX_BYTES = 1500


@pytest.fixture(scope="module", autouse=True)
def topic(broker: KafkaBroker) -> None:
    broker.create_topic(TOPIC)


def only_client(sidecar: GatewaySidecar) -> dict[str, Any]:
    (client,) = sidecar.clients()
    return client


def test_a_java_consumer_that_pushes_too_much_is_reduced_until_its_pushes_fit(broker: KafkaBroker) -> None:
    settings = config_for(broker)
    settings["telemetry"] = {
        "max_bytes": MAX_BYTES,
        "backpressure": {"enabled": True, "offenders": {"max_too_large": 2, "relax_after_s": 4}},
    }
    with GatewaySidecar(settings) as sidecar:
        sidecar.put_subscription("all", ["*"], INTERVAL_MS)
        with JavaClient(Mode.CONSUMER, bootstrap=sidecar.bootstrap(), topic=TOPIC) as consumer:
            wait_until(
                lambda: sidecar.value("reduced_instances", to="standard_metrics") == 1,
                timeout_s=TIMEOUT_S,
                what="the consumer to be reduced",
            )
            wait_until(
                lambda: only_client(sidecar)["pushes"] >= 2, timeout_s=TIMEOUT_S, what="pushes that fit"
            )
            client = only_client(sidecar)
            assert client["requested_metrics"] == list(STANDARD_METRICS)
            assert client["reduced"]["to"] == "standard_metrics"
            assert client["reduced"]["offence"] == "too_large"
            assert 0 <= client["reduced"]["relaxes_in_s"] <= 4
            assert sidecar.value("offences_total", offence="too_large") == 1
            software = {"client_software_name": "apache-kafka-java"}
            assert sidecar.value("pushes_total", outcome="TELEMETRY_TOO_LARGE", **software) == 2
            # It is retried after a while and is still too large.
            wait_until(
                lambda: sidecar.value("offences_total", offence="too_large") == 2,
                timeout_s=TIMEOUT_S,
                what="the consumer to be asked for everything, and reduced again",
            )
            assert sidecar.value("relaxations_total") == 1
            wait_until(
                lambda: (only_client(sidecar)["reduced"] or {}).get("relaxes_in_s", 0) > 4,
                timeout_s=TIMEOUT_S,
                what="twice the time",
            )
            assert consumer.errors == []


def test_intervals_are_longer_while_the_collector_is_down(broker: KafkaBroker) -> None:
    with Collector() as collector:
        settings = config_for(broker, collector=collector)
        settings["plugins"][0]["retry"] = {"initial_ms": 100, "max_ms": 500}
        settings["telemetry"] = {
            "backpressure": {"enabled": True, "max_factor": 2, "behind_s": 2, "step_s": 1},
        }
        with GatewaySidecar(settings) as sidecar:
            sidecar.put_subscription("all", ["*"], INTERVAL_MS)
            with LibrdkafkaClient(Mode.PRODUCER, bootstrap=sidecar.bootstrap(), topic=TOPIC) as producer:
                wait_until(lambda: pushes(sidecar) >= 3, timeout_s=TIMEOUT_S, what="a few pushes")
                assert only_client(sidecar)["interval_factor"] == 1
                assert pushes_within(sidecar, 2.0) >= 3

                collector.kill()
                wait_until(
                    lambda: only_client(sidecar)["push_interval_ms"] == 2 * INTERVAL_MS,
                    timeout_s=TIMEOUT_S,
                    what="a longer interval",
                )
                client = only_client(sidecar)
                assert (client["interval_factor"], client["plugin_behind"]) == (2, "otlp")
                assert sidecar.value("interval_factor") == 2
                (line,) = sidecar.awaited("push intervals lengthened, destination behind")
                assert (line["factor"], line["plugin"]) == (2, "otlp")
                # The client keeps this interval, and does not only receive it.
                before = pushes(sidecar)
                wait_until(lambda: pushes(sidecar) > before, timeout_s=TIMEOUT_S, what="its next push")
                assert 2 <= pushes_within(sidecar, 3.1) <= 4
                assert only_client(sidecar)["last_error"] == "NONE"

                collector.start()
                wait_until(
                    lambda: only_client(sidecar)["push_interval_ms"] == INTERVAL_MS,
                    timeout_s=TIMEOUT_S,
                    what="the interval that was asked for",
                )
                assert sidecar.value("interval_factor") == 1
                assert sidecar.value("interval_steps_total", direction="shorter") == 1
                assert sidecar.awaited("push intervals shortened")
                producer.wait_for_records(10)
                assert producer.errors == []


def test_intervals_are_restored_when_a_reload_turns_it_off(broker: KafkaBroker) -> None:
    with Collector() as collector:
        settings = config_for(broker, collector=collector)
        settings["telemetry"] = {"backpressure": {"enabled": True, "behind_s": 1, "step_s": 1}}
        with GatewaySidecar(settings) as sidecar:
            sidecar.put_subscription("all", ["*"], INTERVAL_MS)
            with LibrdkafkaClient(Mode.PRODUCER, bootstrap=sidecar.bootstrap(), topic=TOPIC):
                wait_until(lambda: pushes(sidecar) >= 1, timeout_s=TIMEOUT_S, what="a push")
                collector.kill()
                wait_until(
                    lambda: only_client(sidecar)["interval_factor"] > 1,
                    timeout_s=TIMEOUT_S,
                    what="a longer interval",
                )
                del settings["telemetry"]
                sidecar.reload()
                wait_until(
                    lambda: only_client(sidecar)["push_interval_ms"] == INTERVAL_MS,
                    timeout_s=TIMEOUT_S,
                    what="the interval that was asked for",
                )
                assert sidecar.value("interval_factor") == 1
                assert len(sidecar.awaited("push intervals shortened")) == 1


def pushes(sidecar: GatewaySidecar) -> int:
    return int(sum(client["pushes"] for client in sidecar.clients()))


def pushes_within(sidecar: GatewaySidecar, seconds: float) -> int:
    before = pushes(sidecar)
    time.sleep(seconds)
    return pushes(sidecar) - before
