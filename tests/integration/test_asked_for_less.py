"""Real clients that are asked for less: they push too much, or a destination stays behind."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.telemetry.offenders import STANDARD_METRICS
from tests.integration.gateway.support import GatewaySidecar
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import JavaClient, Mode
from tests.testbed.process import wait_until
from tests.testbed.sidecar import config_for

TOPIC = "asked-for-less"
INTERVAL_MS = 1000
TIMEOUT_S = 40.0

#: A Java consumer's push of everything has some 3,000 bytes, one of the standard metrics 600.
MAX_BYTES = 1500


@pytest.fixture(scope="module", autouse=True)
def topic(broker: KafkaBroker) -> None:
    broker.create_topic(TOPIC)


def only_client(sidecar: GatewaySidecar) -> dict[str, Any]:
    (client,) = sidecar.clients()
    return client


def test_a_java_consumer_that_pushes_too_much_is_narrowed_until_its_pushes_fit(broker: KafkaBroker) -> None:
    settings = config_for(broker)
    settings["telemetry"] = {
        "max_bytes": MAX_BYTES,
        "backpressure": {"enabled": True, "offenders": {"max_too_large": 2, "relax_after_s": 8}},
    }
    with GatewaySidecar(settings) as sidecar:
        sidecar.put_subscription("all", ["*"], INTERVAL_MS)
        with JavaClient(Mode.CONSUMER, bootstrap=sidecar.bootstrap(), topic=TOPIC) as consumer:
            wait_until(
                lambda: sidecar.value("narrowed_instances", to="standard_metrics") == 1,
                timeout_s=TIMEOUT_S,
                what="the consumer to be narrowed",
            )
            wait_until(
                lambda: only_client(sidecar)["pushes"] >= 2, timeout_s=TIMEOUT_S, what="pushes that fit"
            )
            client = only_client(sidecar)
            assert client["requested_metrics"] == list(STANDARD_METRICS)
            assert client["narrowed"]["to"] == "standard_metrics"
            assert client["narrowed"]["offence"] == "too_large"
            assert 0 <= client["narrowed"]["relaxes_in_s"] <= 8
            assert sidecar.value("offences_total", offence="too_large") == 1
            software = {"client_software_name": "apache-kafka-java"}
            assert sidecar.value("pushes_total", outcome="TELEMETRY_TOO_LARGE", **software) == 2
            # It is tried again after a while, and is as much too large as before.
            wait_until(
                lambda: sidecar.value("offences_total", offence="too_large") == 2,
                timeout_s=TIMEOUT_S,
                what="the consumer to be asked for everything, and narrowed again",
            )
            assert sidecar.value("relaxations_total") == 1
            wait_until(
                lambda: (only_client(sidecar)["narrowed"] or {}).get("relaxes_in_s", 0) > 8,
                timeout_s=TIMEOUT_S,
                what="twice the time",
            )
            assert consumer.errors == []
