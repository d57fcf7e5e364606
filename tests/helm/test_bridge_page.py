"""The examples of docs/bridge.md are valid, with one address and token on both sides."""

from __future__ import annotations

import copy
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner

from deploy.broker_bridge import JAR
from deploy.project import PROJECT
from receiver.cli import app
from tests.helm.configurations import configurations
from tests.helm.test_attach_page import OURS, Snippet, snippets
from tests.helm.test_attach_page import PAGE as ATTACH_PAGE
from tests.helm.test_doctor import TOKENS, doctor_arguments
from tests.integration.bridge.peer import TOKEN
from tests.integration.bridge.support import EXPORTER, JMX, REPORTER
from tests.testbed import jvm, parts
from tests.testbed.broker import KafkaBroker
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.commands import CommandError
from tests.testbed.helm import CHART, NAMESPACE, Helm, Manifest, of_kind, parse
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until
from tests.testbed.sidecar import Sidecar
from tests.testbed.strimzi import unknown_fields

PAGE: Final = CHART.parents[2] / "docs" / "bridge.md"
SNIPPETS: Final = {snippet.kind: snippet for snippet in snippets(PAGE)}
_STRIMZI: Final = "Strimzi's Kafka"
_CONFLUENT: Final = "Confluent's Kafka"
_BITNAMI: Final = "values.yaml of Bitnami's chart"
#: What runs in the broker: Strimzi's adds JmxReporter, and of the others' Kafka each release is
#: before 4.2. Confluent's has a reporter of its own by default.
_REPORTERS: Final = {
    _STRIMZI: [EXPORTER],
    _BITNAMI: [JMX, REPORTER],
    _CONFLUENT: [JMX, "io.confluent.metrics.reporter.ConfluentMetricsReporter", REPORTER],
}
_PREFIX: Final = "kafka.telemetry.bridge."


def _parts(snippet: Snippet) -> tuple[Mapping[str, str], Any, Any, Any]:
    """A broker's properties, environment, volumes and mounts."""
    values = snippet.values
    if snippet.kind == _STRIMZI:
        kafka = values["spec"]["kafka"]
        container = kafka["template"]["kafkaContainer"]
        volumes = kafka["template"]["pod"]["volumes"]
        return kafka["config"], container["env"], volumes, container["volumeMounts"]
    if snippet.kind == _CONFLUENT:
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


@pytest.mark.parametrize("kind", list(_REPORTERS))
def test_a_broker_and_its_receivers_fit_together(kind: str, manifests: list[Manifest]) -> None:
    properties, environment, volumes, mounts = _parts(SNIPPETS[kind])
    (service,) = of_kind(manifests, "Service")
    host = f"{service['metadata']['name']}.{NAMESPACE}.svc.cluster.local"
    bridge = yaml.safe_load(configurations(manifests)[0].text)["bridge"]
    assert properties[_PREFIX + "receivers"] == f"{host}:{bridge['bind'].rpartition(':')[2]}"
    assert properties[_PREFIX + "tls"] == "true"
    assert properties["metric.reporters"].split(",") == _REPORTERS[kind]

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


def test_a_broker_by_the_page_reaches_the_receiver_that_helm_test_proves(helm: Helm, tmp_path: Path) -> None:
    port, rest = free_port(), free_port()
    values = copy.deepcopy(SNIPPETS[OURS].values)
    values["bridge"] |= {"port": port, "bindAddress": LOOPBACK, "replicas": 1}
    values["tokens"] = TOKENS
    values["config"] |= {
        "rest": {"bind": f"0.0.0.0:{rest}"},
        "plugins": [{"type": "console", "delivery": "memory"}],
    }
    properties, *_ = _parts(SNIPPETS[_STRIMZI])
    host = properties[_PREFIX + "receivers"].rpartition(":")[0]
    manifests = parse(helm.template(values))
    (configuration,) = configurations(manifests)
    written = configuration.write(tmp_path)
    files = CertificateAuthority().issue(dns_names=[host]).write(tmp_path, "server")
    shown = tmp_path / "run/secrets/kafka-telemetry"
    shutil.copy(files.chain, shown / "bridge-tls" / "tls.crt")
    shutil.copy(files.key, shown / "bridge-tls" / "tls.key")
    token = shown / "bridge-token" / "token"
    token.write_bytes(TOKEN)
    access = secrets.token_urlsafe()
    (shown / "tokens/ops").write_text(access)
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{LOOPBACK} {host}\n{LOOPBACK} localhost\n")
    here = {
        **properties,
        "metric.reporters": f"{JMX},{EXPORTER}",
        _PREFIX + "receivers": f"{host}:{port}",
        _PREFIX + "token.file": str(token),
        _PREFIX + "tls.ca.file": str(files.ca),
    }
    jar = parts.BRIDGE.require() / JAR
    flags = (*jvm.QUICK_START, f"-Djdk.net.hosts.file={hosts}")
    with KafkaBroker(plugins=[jar], properties=here, jvm_flags=flags) as broker:
        config = yaml.safe_load(written.read_text())
        config["subscriptions"]["kafka"]["bootstrap_servers"] = broker.internal_bootstrap
        written.write_text(yaml.safe_dump(config))
        arguments = doctor_arguments(manifests, written)
        with Sidecar(config, token=access) as receiver:
            wait_until(lambda: "bridge joined" in receiver.log_text(), timeout_s=60, what="the bridge")
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 0, result.output
            assert f"bridge.bind {LOOPBACK}:{port}: answers bridges with TLS" in result.output
            other = CertificateAuthority().issue(dns_names=[host]).write(tmp_path, "other")
            shutil.copy(other.chain, shown / "bridge-tls" / "tls.crt")
            result = CliRunner().invoke(app, arguments)
            assert (result.exit_code, "TLS: " in result.output) == (1, True), result.output
