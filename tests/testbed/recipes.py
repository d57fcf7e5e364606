"""Owns how each part is built, and the order: what `python -m tests.testbed setup` does."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from deploy import broker_bridge
from tests.testbed import (
    cache,
    containerd,
    kafka_image,
    kubernetes_schemas,
    older_kafka,
    parts,
    prerequisites,
    strimzi,
)
from tests.testbed.commands import BuildError, fetch_jars, run
from tests.testbed.parts import DASHBOARDS, EXAMPLES, HERE, Part

Progress = Callable[[str], None]

#: One Go build uses all processors, and the next finds what the last compiled.
_one_go_build = threading.Lock()


def _build_kafka(folder: Path) -> None:
    fetch_jars(HERE / "kafka", folder)


def _build_bridge(folder: Path) -> None:
    try:
        broker_bridge.build(folder)
    except broker_bridge.BridgeError as error:
        raise BuildError(str(error)) from None


def _build_java_programs(folder: Path) -> None:
    jars = parts.KAFKA.require() / "jars"
    sources = [*(HERE / "kafka" / "plugin").rglob("*.java"), *(HERE / "clients" / "java").rglob("*.java")]
    classes = folder / "classes"
    run(["javac", "--release", "17", "-Xlint:all", "-Werror", "-cp", f"{jars}/*", "-d", classes, *sources])
    run(["jar", "--create", "--file", folder / "testbed.jar", "-C", classes, "."])


def _build_with_go(source: Path, program: Path, package: str = ".", *flags: str) -> None:
    command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", str(program), *flags, package]
    with _one_go_build:
        run(command, cwd=source, env={"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"})


def _build_collector(folder: Path) -> None:
    _build_with_go(HERE / "collector", folder / "otelcol")


def _build_franz_client(folder: Path) -> None:
    _build_with_go(HERE / "clients" / "franz", folder / "franz-client")


def _build_prometheus(folder: Path) -> None:
    # Without the clouds' service discoveries, whose clients are most of what would be compiled.
    server = "github.com/prometheus/prometheus/cmd/prometheus"
    _build_with_go(HERE / "prometheus", folder / "prometheus", server, "-tags", "remove_all_sd")


def _build_alertmanager(folder: Path) -> None:
    server = "github.com/prometheus/alertmanager/cmd/alertmanager"
    _build_with_go(HERE / "alertmanager", folder / "alertmanager", server)


def _build_victoria_metrics(folder: Path) -> None:
    server = "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics"
    _build_with_go(HERE / "victoriametrics", folder / "victoria-metrics", server)


def _build_mimir(folder: Path) -> None:
    _build_with_go(HERE / "mimir", folder / "mimir", "github.com/grafana/mimir/cmd/mimir")


def _build_actionlint(folder: Path) -> None:
    _build_with_go(HERE / "actionlint", folder / "actionlint", "tool")


def _build_compose(folder: Path) -> None:
    loader = "github.com/compose-spec/compose-go/v2/cmd"
    _build_with_go(EXAMPLES / "compose", folder / "compose-spec", loader)


def _build_examples_collector(folder: Path) -> None:
    _build_with_go(EXAMPLES / "collector", folder / "otelcol")


def _build_examples_kafka(folder: Path) -> None:
    fetch_jars(EXAMPLES / "kafka", folder)


def _build_helm(folder: Path) -> None:
    # As its own Makefile tells it for which Kubernetes it renders; it believes in 1.20 otherwise.
    major, minor, _ = kubernetes_schemas.NEWEST.split(".")
    told = _told(
        {"k8sVersionMajor": major, "k8sVersionMinor": minor},
        *"helm.sh/helm/v3/pkg/lint/rules",
        "helm.sh/helm/v3/pkg/chartutil",
    )
    _build_with_go(HERE / "helm", folder, "tool", "-ldflags", told)


def _build_strimzi(folder: Path) -> None:
    fetch_jars(HERE / "strimzi", folder)
    strimzi.compile_program(folder)


def _build_kubernetes(folder: Path) -> None:
    _build_of_kubernetes(folder, "kube-apiserver", "kubectl")
    _build_with_go(HERE / "kubernetes", folder / "etcd", "go.etcd.io/etcd/server/v3")


def _build_of_kubernetes(folder: Path, *programs: str) -> None:
    major, minor, _ = parts.KUBERNETES_VERSION.split(".")
    version = {"gitVersion": f"v{parts.KUBERNETES_VERSION}", "gitMajor": major, "gitMinor": minor}
    told = _told(version, "k8s.io/component-base/version")
    packages = [f"k8s.io/kubernetes/cmd/{program}" for program in programs]
    _build_with_go(HERE / "kubernetes", folder, packages[0], "-ldflags", told, *packages[1:])


def _build_node(folder: Path) -> None:
    node = ("kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    _build_of_kubernetes(folder, *node)
    with _one_go_build:
        containerd.build(folder)
    _build_with_go(HERE / "coredns", folder / "coredns")
    _build_with_go(HERE / "pause", folder / "pause")


def _build_network_policies(folder: Path) -> None:
    package = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
    _build_with_go(HERE / "kube_router", folder / "kube-router", package)


def _told(variables: Mapping[str, str], *packages: str) -> str:
    """The linker's flags that give Go packages' variables their values."""
    values = (f"-X {package}.{name}={value}" for package in packages for name, value in variables.items())
    return " ".join(("-s -w", *values))


def _npm_ci(folder: Path) -> None:
    run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder)


def _install_grafana_schema(folder: Path) -> None:
    for source in parts.GRAFANA_SCHEMA.sources:
        shutil.copy(source, folder)
    _npm_ci(folder)


def _install_console(folder: Path) -> None:
    for source in parts.CONSOLE.sources:
        shutil.copy(source, folder)
    _npm_ci(folder)


def _build_grafana_ui(folder: Path) -> None:
    # Of half a gigabyte of packages, a page of 6 MB and what drives the browser are kept.
    build = folder / "build"
    shutil.copytree(DASHBOARDS / "panels", build)
    _npm_ci(build)
    run(["npm", "run", "build"], cwd=build)
    packages = build / "node_modules"
    (folder / "node_modules").mkdir()
    shutil.move(packages / "@grafana" / "ui" / "dist" / "public" / "img" / "icons", folder / "icons")
    for package in ("playwright-core", "upng-js", "pako"):
        shutil.move(packages / package, folder / "node_modules" / package)
    for name in ("page.js", "page.css", "shoot.mjs"):
        shutil.move(build / name, folder / name)
    shutil.rmtree(build)


_BUILD: Mapping[Part, Callable[[Path], None]] = {
    parts.KAFKA: _build_kafka,
    parts.JAVA_PROGRAMS: _build_java_programs,
    parts.KAFKA_IMAGE: kafka_image.build,
    parts.BRIDGE: _build_bridge,
    **{part: partial(older_kafka.build, version) for version, part in parts.OLDER_KAFKAS.items()},
    parts.COLLECTOR: _build_collector,
    parts.FRANZ_CLIENT: _build_franz_client,
    parts.PROMETHEUS: _build_prometheus,
    parts.ALERTMANAGER: _build_alertmanager,
    parts.VICTORIA_METRICS: _build_victoria_metrics,
    parts.MIMIR: _build_mimir,
    parts.ACTIONLINT: _build_actionlint,
    parts.COMPOSE: _build_compose,
    parts.EXAMPLES_COLLECTOR: _build_examples_collector,
    parts.EXAMPLES_KAFKA: _build_examples_kafka,
    parts.HELM: _build_helm,
    parts.KUBERNETES_SCHEMAS: kubernetes_schemas.build,
    parts.STRIMZI: _build_strimzi,
    parts.KUBERNETES: _build_kubernetes,
    parts.NODE: _build_node,
    parts.NETWORK_POLICIES: _build_network_policies,
    parts.GRAFANA_SCHEMA: _install_grafana_schema,
    parts.CONSOLE: _install_console,
    parts.GRAFANA_UI: _build_grafana_ui,
}


def set_up(wanted: Iterable[Part], progress: Progress) -> None:
    """Make sure that ``wanted`` parts are built, side by side; parts that are cost next to nothing.

    Args:
        wanted: Parts in an order in which each comes after what it needs.
        progress: Gets one line for whatever takes time, from several threads.

    Raises:
        MissingPrerequisiteError: The machine lacks a tool; nothing was built.
        BuildError: A part could not be built.
        StartError: A part was built but does not start.
    """
    todo = list(dict.fromkeys(wanted))
    missing = [part for part in todo if part not in _BUILD or not _is_there(part)]
    prerequisites.require((tool for part in missing for tool in part.tools), progress)
    with ThreadPoolExecutor(max_workers=max(1, len(todo))) as threads:
        building: dict[Part, Future[None]] = {}
        for part in todo:
            needed = [building[other] for other in part.after if other in building]
            building[part] = threads.submit(_build_after, needed, part, progress)
    for built in building.values():
        built.result()


def _build_after(needed: Iterable[Future[None]], part: Part, progress: Progress) -> None:
    for other in needed:
        other.result()
    if part in _BUILD:
        _build_once(part, progress)
    else:
        progress(f"{part.name}: found {part.about}")


def _is_there(part: Part) -> bool:
    try:
        return part.folder().is_dir()
    except prerequisites.MissingPrerequisiteError:
        return False


def _build_once(part: Part, progress: Progress) -> None:
    folder = part.folder()
    if not folder.is_dir():
        with cache.exclusive(part.name, lambda: progress(f"{part.name}: another run builds it; waiting")):
            if not folder.is_dir():
                progress(f"{part.name}: {part.about} ...")
                start = time.monotonic()
                cache.build_atomically(folder, _BUILD[part])
                progress(f"{part.name}: done in {time.monotonic() - start:.1f} s")
    cache.forget_unused(folder)
