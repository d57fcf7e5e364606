"""docs/receiver-metrics.md lists exactly the metrics of a real sidecar."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.integration.gateway.support import GatewaySidecar, Raw, config, get_subscriptions, push, read_get
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.scripted_broker import ScriptedBroker

_PAGE = (Path(__file__).parents[3] / "docs" / "receiver-metrics.md").read_text()


def test_the_page_is_what_a_sidecar_is_scraped_for(tmp_path: Path) -> None:
    documented = {
        name: set(labels.split(", ")) - {""}
        for names, labels in re.findall(r"^\| (`[^|]*`) \| ([^|]*?) ?\|", _PAGE, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    certificate = CertificateAuthority().issue().write(tmp_path)
    with ScriptedBroker() as broker:
        settings = config(broker.port, plugins=[{"type": "console"}])
        settings["listeners"][0] |= {
            "security_protocol": "SSL",
            "tls": {"cert_file": str(certificate.chain), "key_file": str(certificate.key)},
        }
        plain = config(broker.port)["listeners"][0] | {"name": "PLAIN"}
        settings["listeners"].append(plain)
        with GatewaySidecar(settings) as sidecar, Raw(sidecar.port("PLAIN")) as raw:
            _, instance, subscription = read_get(raw.exchange(get_subscriptions()))
            raw.exchange(push(instance, subscription))
            families = list(text_string_to_metric_families(sidecar.http.get("/metrics").text))
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name: {
            label for sample in family.samples for label in sample.labels if label != "le"
        }
        for family in families
        if not family.name.startswith("process_")
    }
    assert shown.keys() == documented.keys()
    seen = {name: labels for name, labels in shown.items() if labels}
    assert {"kafka_telemetry_pushes_total", "kafka_telemetry_plugin_state"} <= seen.keys()
    assert {name: documented[name] for name in seen} == seen
    assert {name for name, labels in documented.items() if labels} >= seen.keys()
