"""Every example of docs/attach.md renders, loads, and names the same addresses on both sides."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner

from receiver.cli import app
from tests.helm.configurations import configurations
from tests.helm.features import BROKER_CHART
from tests.testbed import kubernetes_schemas
from tests.testbed.helm import CHART, Helm, Manifest, of_kind, parse

PAGE: Final = CHART.parents[2] / "docs" / "attach.md"
OURS: Final = "values.yaml of kafka-client-telemetry"
RECEIVER: Final = "receiver.yaml"

_SNIPPET: Final = re.compile(r"^```(\w+)\n# ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PORT: Final = re.compile(r"(\d+) \+ \{nodeId\}")
_MSK: Final = re.compile(r"custom\.advertised\.listeners=(\w+)://([\w.]+):(\d+)\+\{broker_id\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A fenced block of the page.

    Attributes:
        section: The heading above it.
        title: The comment in its first line.
        text: The rest.
    """

    section: str
    title: str
    text: str

    @property
    def kind(self) -> str:
        """The title up to a colon."""
        return self.title.partition(":")[0]

    @property
    def values(self) -> Any:
        """The text as YAML."""
        return yaml.safe_load(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """What brokers advertise by a snippet.

    Attributes:
        address: The advertised address of a node id.
        port: The port of the brokers' own listener, if the snippet has it.
        security_protocol: The listener's, if the snippet has it.
    """

    address: Callable[[int], str]
    port: int | None = None
    security_protocol: str | None = None


def snippets(file: Path) -> list[Snippet]:
    """The fenced blocks of a page that have a title."""
    page = file.read_text()
    return [
        Snippet(section=heading, title=found[2], text=found[3])
        for heading, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
        for found in _SNIPPET.finditer(text)
    ]


SNIPPETS: Final = snippets(PAGE)


def _of(kind: str) -> list[Any]:
    return [pytest.param(snippet, id=snippet.section) for snippet in SNIPPETS if snippet.kind == kind]


def _strimzi(snippet: Snippet) -> Advertised:
    (listener,) = snippet.values["spec"]["kafka"]["listeners"]
    host = listener["configuration"]["advertisedHostTemplate"]
    base = _PORT.fullmatch(listener["configuration"]["advertisedPortTemplate"])
    assert base
    assert (listener["tls"], listener["authentication"]) == (True, {"type": "scram-sha-512"})
    return Advertised(
        address=lambda node_id: f"{host}:{int(base[1]) + node_id}",
        port=listener["port"],
        security_protocol="SASL_SSL",
    )


def _confluent(snippet: Snippet) -> Advertised:
    access = snippet.values["spec"]["listeners"]["external"]["externalAccess"]
    found = access[access["type"]]
    return Advertised(address=lambda node_id: f"{found['host']}:{found['portOffset'] + node_id}")


def _redpanda(snippet: Snippet) -> Advertised:
    listener = snippet.values["listeners"]["kafka"]["external"]["default"]
    hosts = snippet.values["external"]["addresses"]
    assert len(hosts) == len(listener["advertisedPorts"])
    return Advertised(
        address=lambda node_id: f"{hosts[node_id]}:{listener['advertisedPorts'][node_id]}",
        port=listener["port"],
        security_protocol="PLAINTEXT",
    )


def _msk(snippet: Snippet) -> Advertised:
    found = _MSK.fullmatch(snippet.text.strip())
    assert found
    return Advertised(
        address=lambda node_id: f"{found[2]}:{int(found[3]) + node_id}", security_protocol="SASL_SSL"
    )


_BROKERS: Final[Mapping[str, Callable[[Snippet], Advertised]]] = {
    "Strimzi's Kafka": _strimzi,
    "Confluent's Kafka": _confluent,
    "values.yaml of Redpanda's chart": _redpanda,
    "MSK configuration": _msk,
}
#: Tried by tests of their own.
_OTHERS: Final = {"server.properties", "values.yaml of Bitnami's chart"}


def test_every_snippet_is_tried() -> None:
    assert PAGE.read_text().count("```") == 2 * len(SNIPPETS)
    assert {snippet.kind for snippet in SNIPPETS} == {OURS, RECEIVER, *_BROKERS, *_OTHERS}


@pytest.mark.parametrize("snippet", _of(RECEIVER))
def test_a_configuration_is_good(snippet: Snippet, tmp_path: Path) -> None:
    file = tmp_path / "receiver.yaml"
    file.write_text(snippet.text)
    done = CliRunner().invoke(app, ["config", "check", "--elsewhere", str(file)])
    assert done.exit_code == 0, done.output


def test_values_make_valid_manifests_and_configurations(helm: Helm, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    for number, snippet in enumerate(item for item in SNIPPETS if item.kind == OURS):
        text = helm.template(snippet.values)
        (manifests / f"{number}.yaml").write_text(text)
        (found,) = configurations(parse(text))
        file = tmp_path / f"{number}.yaml"
        file.write_text(found.text)
        command = ["config", "check", "--elsewhere", str(file)]
        done = CliRunner().invoke(app, command, env=dict(found.environment))
        assert done.exit_code == 0, f"{snippet.section}: {done.output}"
        named = {
            path
            for path in re.findall(r"/run/secrets/\S+", found.text)
            if not any(path.startswith(f"{mount}/") for mount in found.mounts or ())
        }
        assert named == set(), snippet.section
    assert helm.check(manifests, kubernetes_schemas.NEWEST) == []


def _addresses(manifests: list[Manifest]) -> Iterator[tuple[int, str]]:
    """Yield each broker's node id and its address at the gateway."""
    (service,) = (
        item
        for item in of_kind(manifests, "Service")
        if item["metadata"]["labels"]["app.kubernetes.io/component"] == "gateway-clients"
    )
    metadata = service["metadata"]
    inside = f"{metadata['name']}.{metadata['namespace']}.svc.cluster.local"
    host = metadata.get("annotations", {}).get("external-dns.alpha.kubernetes.io/hostname", inside)
    for port in service["spec"]["ports"]:
        yield int(port["name"].removeprefix("broker-")), f"{host}:{port['port']}"


@pytest.mark.parametrize(
    "snippet", [pytest.param(item, id=item.section) for item in SNIPPETS if item.kind in _BROKERS]
)
def test_brokers_advertise_their_ports_of_the_gateway(helm: Helm, snippet: Snippet) -> None:
    advertised = _BROKERS[snippet.kind](snippet)
    (ours,) = (item for item in SNIPPETS if (item.section, item.kind) == (snippet.section, OURS))
    manifests = parse(helm.template(ours.values))
    found = dict(_addresses(manifests))
    assert len(found) == 3
    assert found == {node_id: advertised.address(node_id) for node_id in found}
    (configuration,) = configurations(manifests)
    for listener in yaml.safe_load(configuration.text)["listeners"]:
        # The brokers' own listener, and not the port at which its clients come.
        assert advertised.port is None or listener["upstream"].endswith(f":{advertised.port}")
        protocol = listener.get("security_protocol", "PLAINTEXT")
        assert protocol == (advertised.security_protocol or "PLAINTEXT")
        assert ("upstream_tls" in listener) == protocol.endswith("SSL")


def test_a_gateway_that_rewrites_has_the_ports_that_it_names(helm: Helm) -> None:
    ours, receiver = (
        next(snippet for snippet in SNIPPETS if snippet.title == title)
        for title in (f"{OURS}: addresses are rewritten", "receiver.yaml: a port for each node")
    )
    manifests = parse(helm.template(ours.values))
    (configuration,) = configurations(manifests)
    (listener,) = yaml.safe_load(configuration.text)["listeners"]
    (shown,) = receiver.values["listeners"]
    assert listener["rewrite"] == shown["rewrite"]
    (service,) = (
        item for item in of_kind(manifests, "Service") if item["spec"].get("type") == "LoadBalancer"
    )
    ports = {port["port"] for port in service["spec"]["ports"]}
    first, nodes = shown["rewrite"]["first_port"], shown["rewrite"]["nodes"]
    assert ports == {29092, *range(first, first + nodes)}


def test_a_machines_broker_and_sidecar_fit_together() -> None:
    broker, receiver = (snippet for snippet in SNIPPETS if snippet.section == "On machines")
    settings = dict(line.split("=", 1) for line in broker.text.splitlines())
    (listener,) = receiver.values["listeners"]
    binds, advertised = (
        dict(part.split("://") for part in settings[key].split(","))
        for key in ("listeners", "advertised.listeners")
    )
    assert binds["CLIENT"] == listener["upstream"]
    assert advertised["CLIENT"].split(":")[1] == listener["bind"].split(":")[1]
    assert binds["INTERNAL"] == advertised["INTERNAL"]
    assert settings["inter.broker.listener.name"] == "INTERNAL"


def test_bitnamis_values_have_the_charts_container_and_volumes(helm: Helm, tmp_path: Path) -> None:
    ours, theirs = (snippet for snippet in SNIPPETS if snippet.section == "Bitnami's chart")
    parent = tmp_path / "parent"
    (parent / "templates").mkdir(parents=True)
    shutil.copy(BROKER_CHART / "Chart.yaml", parent)
    shutil.copytree(CHART, parent / "charts" / CHART.name)
    (parent / "templates" / "pod.yaml").write_text(
        """
kind: Pod
{{- $telemetry := index .Subcharts "kafka-client-telemetry" }}
initContainers:
  - {{ include "kafka-client-telemetry.sidecar.container" $telemetry | nindent 4 | trim }}
extraVolumes:
  {{- include "kafka-client-telemetry.sidecar.volumes" $telemetry | nindent 2 }}
"""
    )
    manifests = parse(helm.template({CHART.name: ours.values}, chart=parent))
    (pod,) = of_kind(manifests, "Pod")
    controller = theirs.values["controller"]
    assert controller["initContainers"] == pod["initContainers"]
    assert controller["extraVolumes"] == pod["extraVolumes"]
    config_maps = [manifest["metadata"]["name"] for manifest in of_kind(manifests, "ConfigMap")]
    assert controller["extraVolumes"][0]["configMap"]["name"] in config_maps

    (listener,) = ours.values["config"]["listeners"]
    # The container port is the advertised one and the Service's, so it has to be the sidecar's.
    assert listener["bind"] == f"0.0.0.0:{theirs.values['listeners']['client']['containerPort']}"
    binds = dict(part.split("://") for part in theirs.values["listeners"]["overrideListeners"].split(","))
    assert binds["CLIENT"] == listener["upstream"]
    assert binds.keys() == {"CLIENT", "INTERNAL", "CONTROLLER"}
