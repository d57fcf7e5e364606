"""The examples of docs/bridge.md are valid, with one address and token on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from deploy.project import PROJECT
from tests.helm.configurations import configurations
from tests.helm.test_attach_page import OURS, Snippet, snippets
from tests.helm.test_attach_page import PAGE as ATTACH_PAGE
from tests.integration.bridge.support import EXPORTER, JMX
from tests.testbed.commands import CommandError
from tests.testbed.helm import CHART, NAMESPACE, Helm, Manifest, of_kind, parse
from tests.testbed.strimzi import unknown_fields

PAGE: Final = CHART.parents[2] / "docs" / "bridge.md"
SNIPPETS: Final = {snippet.kind: snippet for snippet in snippets(PAGE)}
_STRIMZI: Final = "Strimzi's Kafka"
_PREFIX: Final = "kafka.telemetry.bridge."


def _parts(snippet: Snippet) -> tuple[Mapping[str, str], Any, Any, Any]:
    """A broker's properties, environment, volumes and mounts."""
    values = snippet.values
    if snippet.kind == _STRIMZI:
        kafka = values["spec"]["kafka"]
        container = kafka["template"]["kafkaContainer"]
        volumes = kafka["template"]["pod"]["volumes"]
        return kafka["config"], container["env"], volumes, container["volumeMounts"]
    if snippet.kind == "Confluent's Kafka":
        spec = values["spec"]
        server = dict(line.split("=", 1) for line in spec["configOverrides"]["server"])
        mounted = spec["mountedVolumes"]
        return server, spec["podTemplate"]["envVars"], mounted["volumes"], mounted["volumeMounts"]
    node = values["controller"]
    found = (node["extraEnvVars"], node["extraVolumes"], node["extraVolumeMounts"])
    return values["overrideConfiguration"], *found


@pytest.fixture(scope="module")
def manifests(helm: Helm) -> list[Manifest]:
    """What the page's values render."""
    return parse(helm.template(SNIPPETS[OURS].values))


@pytest.mark.parametrize("kind", [_STRIMZI, "Confluent's Kafka", "values.yaml of Bitnami's chart"])
def test_a_broker_and_its_receivers_fit_together(kind: str, manifests: list[Manifest]) -> None:
    properties, environment, volumes, mounts = _parts(SNIPPETS[kind])
    (service,) = of_kind(manifests, "Service")
    host = f"{service['metadata']['name']}.{NAMESPACE}.svc.cluster.local"
    bridge = yaml.safe_load(configurations(manifests)[0].text)["bridge"]
    assert properties[_PREFIX + "receivers"] == f"{host}:{bridge['bind'].rpartition(':')[2]}"
    assert properties[_PREFIX + "tls"] == "true"
    # Strimzi adds JmxReporter itself.
    reporters = [EXPORTER] if kind == _STRIMZI else [JMX, EXPORTER]
    assert properties["metric.reporters"].split(",") == reporters

    places = {mount["mountPath"]: mount["name"] for mount in mounts}
    sources = {volume["name"]: volume for volume in volumes}
    assert environment == [{"name": "CLASSPATH", "value": "/mnt/bridge/*"}]
    jar = sources[places["/mnt/bridge"]]
    if "image" in jar:
        assert jar["image"]["reference"].endswith(f"/bridge:{PROJECT['version']}")
    named = {
        key: sources[places[str(Path(properties[_PREFIX + key]).parent)]]["secret"]["secretName"]
        for key in ("token.file", "tls.ca.file")
    }
    ours = SNIPPETS[OURS].values["bridge"]
    assert named == {"token.file": ours["token"]["secretName"], "tls.ca.file": ours["tls"]["secretName"]}


@pytest.mark.parametrize(
    ("page", "newer"),
    [
        (PAGE, set()),
        # Since Strimzi 1.0, of which no class is in a package registry.
        (ATTACH_PAGE, {".spec.kafka.listeners[0].configuration.advertisedPortTemplate"}),
    ],
    ids=["bridge", "attach"],
)
def test_strimzis_operator_knows_every_field(page: Path, newer: set[str]) -> None:
    (snippet,) = (snippet for snippet in snippets(page) if snippet.kind == _STRIMZI)
    assert set(unknown_fields(snippet.text)) == newer


def test_a_field_that_strimzi_does_not_know_is_found() -> None:
    text = SNIPPETS[_STRIMZI].text
    misspelt = text.replace("volumeMounts:", "volumeMount:").replace("image: {ref", "picture: {ref")
    assert set(unknown_fields(misspelt)) == {
        ".spec.kafka.template.kafkaContainer.volumeMount",
        ".spec.kafka.template.pod.volumes[0].picture",
    }
    with pytest.raises(CommandError):
        unknown_fields(text.replace("volumeMounts:", "volumeMounts: 5\n        env: "))
