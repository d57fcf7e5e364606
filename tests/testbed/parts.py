"""Lists the real parts: their versions, recipe files, and folders once built.

How a part is built is :mod:`tests.testbed.recipes`'s business.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.testbed import cache, kubernetes_schemas, prerequisites
from tests.testbed.prerequisites import Tool

HERE = Path(__file__).parent
DASHBOARDS = HERE.parent / "dashboards"
TESTS_CONSOLE = HERE.parent / "console"
EXAMPLES = HERE.parent / "examples" / "recipes"
TREE = HERE.parents[1]

#: What the recipes pin; the files beside this one hold the same numbers (pom.xml, go.mod,
#: package.json).
KAFKA_VERSION = "4.4.0"
#: Releases with each form of the plugin interface, and of what a plugin gets.
OLDER_KAFKA_VERSIONS = ("3.7.2", "3.9.2", "4.1.2", "4.3.1")
COLLECTOR_VERSION = "0.155.0"
FRANZ_VERSION = "1.22.2"
PROMETHEUS_VERSION = "3.15.0"
ALERTMANAGER_VERSION = "0.31.1"
VICTORIA_METRICS_VERSION = "1.136.23"
MIMIR_VERSION = "of 2026-04-23"
GRAFANA_VERSION = "13.2.2"
HELM_VERSION = "3.22.0"
KUBECONFORM_VERSION = "0.8.0"
KUBERNETES_VERSION = "1.36.3"
CONTAINERD_VERSION = "2.2.9"
COREDNS_VERSION = "1.14.7"
ETCD_VERSION = "3.6.8"
KUBE_ROUTER_VERSION = "2.1.0"

#: The environment variable that names the parts of a run, in :data:`GROUPS`' words. Others can't be
#: used then, also when they are built, so that a run passes on a machine that has just these.
CHOSEN = "TESTBED_PARTS"


class NotSetUpError(Exception):
    """A part was asked for that is not built yet; the message says how to build it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """One thing that is fetched or built.

    Attributes:
        name: Its name in the cache folder and in progress lines.
        about: What it is and in which version, for progress lines.
        sources: Files and folders whose contents are its recipe.
        tools: What must be on the machine to build it.
        after: Parts that must be built before; their recipes belong to this one's.
        needs_this_java: Whether the result works with the very Java that built it only.
    """

    name: str
    about: str
    sources: tuple[Path, ...] = ()
    tools: tuple[Tool, ...] = ()
    after: tuple[Part, ...] = ()
    needs_this_java: bool = False

    def key(self) -> str:
        """The content hash of the recipe.

        Raises:
            MissingPrerequisiteError: It depends on the version of Java, and there is none.
        """
        java = prerequisites.java_version() if self.needs_this_java else ""
        return cache.recipe_hash(self.sources, self.name, java, *(part.key() for part in self.after))

    def folder(self) -> Path:
        """Where the part is, or will be, in the cache folder."""
        return cache.cache_folder() / f"{self.name}-{self.key()}"

    def require(self) -> Path:
        """The folder of the built part.

        Raises:
            NotSetUpError: It is not built, or this run does without it.
        """
        chosen = os.environ.get(CHOSEN)
        if chosen is not None and not any(self in GROUPS[name] for name in chosen.split(",")):
            raise NotSetUpError(
                f"this run does without {self.about}: mark the test `full`, as tests/selection.py says"
            )
        folder = self.folder()
        if not folder.is_dir():
            raise NotSetUpError(
                f"the testbed lacks {self.about}: run `make setup`, or `python -m tests.testbed setup`"
            )
        return folder


KAFKA = Part(
    name="kafka",
    about=f"Apache Kafka {KAFKA_VERSION} from Maven Central",
    sources=(HERE / "kafka" / "pom.xml",),
    tools=(prerequisites.JAVA, prerequisites.MAVEN),
)
JAVA_PROGRAMS = Part(
    name="java-programs",
    about="the broker's telemetry plugin and the Java client",
    sources=(HERE / "kafka" / "plugin", HERE / "clients" / "java"),
    tools=(prerequisites.JAVA,),
    after=(KAFKA,),
)
KAFKA_IMAGE = Part(
    name="kafka-image",
    about="a formatted data folder and class data archives for quick starts",
    sources=(
        HERE / "kafka" / "storage.properties",
        HERE / "kafka" / "log4j2.properties",
        HERE / "kafka_image.py",
        HERE / "jvm.py",
    ),
    tools=(prerequisites.JAVA, prerequisites.SETPRIV),
    after=(KAFKA, JAVA_PROGRAMS),
    needs_this_java=True,
)
OLDER_KAFKAS: Mapping[str, Part] = {
    version: Part(
        name=f"kafka-{version}",
        about=f"Apache Kafka {version} from Maven Central, and a formatted data folder",
        sources=(
            HERE / "kafka" / "pom.xml",
            HERE / "kafka" / "storage.properties",
            HERE / "kafka" / "log4j2.properties",
            HERE / "older_kafka.py",
        ),
        tools=(prerequisites.JAVA, prerequisites.MAVEN),
    )
    for version in OLDER_KAFKA_VERSIONS
}
BRIDGE = Part(
    name="bridge",
    about="the project's plugin for brokers",
    sources=(
        TREE / "plugins" / "broker_bridge" / "src",
        TREE / "plugins" / "broker_bridge" / "pom.xml",
        TREE / "plugins" / "broker_bridge" / "jars.sha256",
        TREE / "deploy" / "broker_bridge.py",
    ),
    tools=(prerequisites.JAVA, prerequisites.MAVEN),
)
COLLECTOR = Part(
    name="collector",
    about=f"OpenTelemetry Collector {COLLECTOR_VERSION} by Go",
    sources=(HERE / "collector",),
    tools=(prerequisites.GO, prerequisites.SETPRIV),
)
FRANZ_CLIENT = Part(
    name="franz-client",
    about=f"the franz-go {FRANZ_VERSION} client by Go",
    sources=(HERE / "clients" / "franz",),
    tools=(prerequisites.GO, prerequisites.SETPRIV),
)
PROMETHEUS = Part(
    name="prometheus",
    about=f"Prometheus {PROMETHEUS_VERSION} by Go",
    sources=(HERE / "prometheus",),
    tools=(prerequisites.GO, prerequisites.SETPRIV),
)
ALERTMANAGER = Part(
    name="alertmanager",
    about=f"Alertmanager {ALERTMANAGER_VERSION} by Go",
    sources=(HERE / "alertmanager",),
    tools=(prerequisites.GO, prerequisites.SETPRIV),
)
VICTORIA_METRICS = Part(
    name="victoria-metrics",
    about=f"VictoriaMetrics {VICTORIA_METRICS_VERSION} by Go",
    sources=(HERE / "victoriametrics",),
    tools=(prerequisites.GO, prerequisites.SETPRIV),
)
MIMIR = Part(
    name="mimir",
    about=f"Grafana Mimir {MIMIR_VERSION} by Go",
    sources=(HERE / "mimir",),
    tools=(prerequisites.GO, prerequisites.SETPRIV),
)
ACTIONLINT = Part(
    name="actionlint",
    about="actionlint, which checks the workflows, by Go",
    sources=(HERE / "actionlint",),
    tools=(prerequisites.GO, prerequisites.SETPRIV),
)
GRAFANA_SCHEMA = Part(
    name="grafana-schema",
    about=f"Grafana {GRAFANA_VERSION}'s types of a dashboard by npm",
    sources=tuple(DASHBOARDS / "types" / name for name in ("package.json", "package-lock.json")),
    tools=(prerequisites.NODE,),
)
GRAFANA_UI = Part(
    name="grafana-ui",
    about=f"Grafana {GRAFANA_VERSION}'s components in a page that draws dashboards, by npm",
    sources=(DASHBOARDS / "panels",),
    tools=(prerequisites.NODE, prerequisites.CHROMIUM),
)
CONSOLE = Part(
    name="console",
    about="TypeScript, and what drives Chromium through the receiver's console, by npm",
    sources=tuple(TESTS_CONSOLE / name for name in ("package.json", "package-lock.json")),
    tools=(prerequisites.NODE, prerequisites.CHROMIUM),
)
COMPOSE = Part(
    name="compose",
    about="the compose specification's reference loader by Go",
    sources=(EXAMPLES / "compose",),
    tools=(prerequisites.GO, prerequisites.SETPRIV),
)
EXAMPLES_COLLECTOR = Part(
    name="examples-collector",
    about=f"OpenTelemetry Collector {COLLECTOR_VERSION} with the examples' exporters by Go",
    sources=(EXAMPLES / "collector",),
    tools=(prerequisites.GO, prerequisites.SETPRIV),
)
EXAMPLES_KAFKA = Part(
    name="examples-kafka",
    about="Apache Kafka with its tools, of the examples' image, from Maven Central",
    sources=(EXAMPLES / "kafka",),
    tools=(prerequisites.JAVA, prerequisites.MAVEN),
)
HELM = Part(
    name="helm",
    about=f"Helm {HELM_VERSION}, helm-unittest and kubeconform {KUBECONFORM_VERSION} by Go",
    sources=(HERE / "helm",),
    tools=(prerequisites.GO, prerequisites.SETPRIV),
)
KUBERNETES_SCHEMAS = Part(
    name="kubernetes-schemas",
    about=f"JSON schemas of Kubernetes {' and '.join(kubernetes_schemas.RELEASES)} and of custom resources",
    sources=(
        HERE / "kubernetes_schemas.py",
        kubernetes_schemas.REQUIREMENTS,
    ),
    tools=(prerequisites.GO,),
)
STRIMZI = Part(
    name="strimzi",
    about="the classes of Strimzi's resources from Maven Central",
    sources=(HERE / "strimzi",),
    tools=(prerequisites.JAVA, prerequisites.MAVEN),
)
KUBERNETES = Part(
    name="kubernetes",
    about=f"kube-apiserver and kubectl {KUBERNETES_VERSION}, etcd {ETCD_VERSION} by Go",
    sources=(HERE / "kubernetes" / "go.mod", HERE / "kubernetes" / "go.sum"),
    tools=(prerequisites.GO, prerequisites.SETPRIV),
)
NODE = Part(
    name="node",
    about=f"kubelet and controllers {KUBERNETES_VERSION}, containerd {CONTAINERD_VERSION}, "
    f"CoreDNS {COREDNS_VERSION} by Go",
    sources=(
        HERE / "kubernetes" / "go.mod",
        HERE / "kubernetes" / "go.sum",
        HERE / "coredns",
        HERE / "pause",
        HERE / "containerd.py",
    ),
    tools=(prerequisites.GO, prerequisites.SETPRIV, *prerequisites.NODE_TOOLS),
)
NETWORK_POLICIES = Part(
    name="network-policies",
    about=f"kube-router {KUBE_ROUTER_VERSION}, which enforces network policies, by Go",
    sources=(HERE / "kube_router",),
    tools=(prerequisites.GO, prerequisites.SETPRIV, prerequisites.IPSET, *prerequisites.NODE_TOOLS),
)
#: Come from the machine; nothing is built.
HAPROXY = Part(
    name="haproxy",
    about="HAProxy, which benchmarks compare with and PROXY headers come from",
    tools=(prerequisites.HAPROXY,),
)
NETWORK = Part(name="network", about="iproute2, which makes hosts for tests", tools=(prerequisites.IP,))

_CLIENTS = (KAFKA, JAVA_PROGRAMS, KAFKA_IMAGE, FRANZ_CLIENT)
#: What `--parts` knows.
GROUPS: Mapping[str, tuple[Part, ...]] = {
    "broker": (KAFKA, JAVA_PROGRAMS, KAFKA_IMAGE),
    "older-kafkas": tuple(OLDER_KAFKAS.values()),
    "bridge": (BRIDGE,),
    "collector": (COLLECTOR,),
    "clients": _CLIENTS,
    "prometheus": (PROMETHEUS,),
    "alertmanager": (ALERTMANAGER,),
    "victoria-metrics": (VICTORIA_METRICS,),
    "mimir": (MIMIR,),
    "actionlint": (ACTIONLINT,),
    "grafana-schema": (GRAFANA_SCHEMA,),
    "grafana-ui": (GRAFANA_UI,),
    "console": (CONSOLE,),
    "compose": (COMPOSE,),
    "examples": (COMPOSE, EXAMPLES_COLLECTOR, EXAMPLES_KAFKA),
    "tools": (EXAMPLES_KAFKA,),
    "helm": (HELM, KUBERNETES_SCHEMAS, STRIMZI),
    "kubernetes": (HELM, KUBERNETES_SCHEMAS, KUBERNETES),
    "node": (EXAMPLES_KAFKA, COLLECTOR, *_CLIENTS, KUBERNETES_SCHEMAS, KUBERNETES, NODE),
    "network-policies": (NETWORK_POLICIES,),
    "haproxy": (HAPROXY,),
    "network": (NETWORK,),
}
