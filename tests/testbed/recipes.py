"""Owns how each part is built, and the order: what `python -m tests.testbed setup` does."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.testbed import cache, jvm, parts, prerequisites
from tests.testbed.broker import CLUSTER_ID, SASL_USERS, KafkaBroker, Listener
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.clients import JavaClient, Mode
from tests.testbed.parts import HERE, Part
from tests.testbed.ports import LOOPBACK
from tests.testbed.process import ScratchFolder
from tests.testbed.security import Login, Security

_COMMAND_TIMEOUT_S = 1800.0

Progress = Callable[[str], None]

#: One Go build uses all processors, and the next finds what the last compiled.
_one_go_build = threading.Lock()


class BuildError(Exception):
    """A part could not be built; the message has the command and the end of what it printed."""


def _run(
    command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> None:
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"`{words[0]}` still ran after {_COMMAND_TIMEOUT_S:g} s and was ended") from None
    if done.returncode:
        raise BuildError(f"`{' '.join(words)[:300]}` ended with {done.returncode}:\n{done.stdout[-3000:]}")


def _build_kafka(folder: Path) -> None:
    pom = folder / "pom.xml"
    shutil.copy(HERE / "kafka" / "pom.xml", pom)
    _run(
        [
            "mvn",
            "--batch-mode",
            "--quiet",
            "--file",
            pom,
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={folder / 'jars'}",
        ]
    )


def _build_java_programs(folder: Path) -> None:
    jars = parts.KAFKA.require() / "jars"
    sources = [*(HERE / "kafka" / "plugin").rglob("*.java"), *(HERE / "clients" / "java").rglob("*.java")]
    classes = folder / "classes"
    _run(["javac", "--release", "17", "-Xlint:all", "-Werror", "-cp", f"{jars}/*", "-d", classes, *sources])
    _run(["jar", "--create", "--file", folder / "testbed.jar", "-C", classes, "."])


def _build_kafka_image(folder: Path) -> None:
    settings = folder / "format.properties"
    settings.write_text((HERE / "kafka" / "storage.properties").read_text() + f"log.dirs={folder / 'data'}\n")
    users = [
        f"--add-scram={mechanism}=[name={name},password={password}]"
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for name, password in SASL_USERS.items()
    ]
    _run(jvm.command("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", settings, *users))
    # A dynamic archive holds what its run loaded: so let each program do what it is for, once.
    archiving = {
        name: (*jvm.QUICK_START, f"-XX:ArchiveClassesAtExit={folder / name}")
        for name in (jvm.BROKER_ARCHIVE, jvm.PRODUCER_ARCHIVE, jvm.CONSUMER_ARCHIVE)
    }
    login = Login(mechanism="SCRAM-SHA-256", user="alice", password=SASL_USERS["alice"])
    with contextlib.ExitStack() as running:
        certificate = CertificateAuthority().issue().write(running.enter_context(ScratchFolder("tls")).path)
        broker = running.enter_context(
            KafkaBroker(
                image=folder,
                listeners=[Listener(name="SASL_SSL", security_protocol="SASL_SSL")],
                certificate=certificate,
                telemetry_plugin=True,
                jvm_flags=archiving[jvm.BROKER_ARCHIVE],
            )
        )
        broker.alter_client_metrics("all", ["*"], 500)
        broker.create_topic("warm-up")
        with contextlib.ExitStack() as clients:
            for mode, archive in (
                (Mode.PRODUCER, jvm.PRODUCER_ARCHIVE),
                (Mode.CONSUMER, jvm.CONSUMER_ARCHIVE),
            ):
                client = clients.enter_context(
                    JavaClient(
                        mode,
                        bootstrap=f"{LOOPBACK}:{broker.port('SASL_SSL')}",
                        topic="warm-up",
                        security=Security(login=login, ca=certificate.ca),
                        jvm_flags=archiving[archive],
                    )
                )
                client.wait_for_records(1)
            broker.wait_for_log('"telemetry_push"')
        broker.stop()
    for name in archiving:
        if not (folder / name).is_file():
            raise BuildError(f"the Java run that should have left {name} did not")


def _build_with_go(source: Path, program: Path, package: str = ".", *flags: str) -> None:
    command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", str(program), *flags, package]
    with _one_go_build:
        _run(command, cwd=source, env={"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"})


def _build_collector(folder: Path) -> None:
    _build_with_go(HERE / "collector", folder / "otelcol")


def _build_franz_client(folder: Path) -> None:
    _build_with_go(HERE / "clients" / "franz", folder / "franz-client")


def _build_prometheus(folder: Path) -> None:
    # Without the clouds' service discoveries, whose clients are most of what would be compiled.
    server = "github.com/prometheus/prometheus/cmd/prometheus"
    _build_with_go(HERE / "prometheus", folder / "prometheus", server, "-tags", "remove_all_sd")


def _install_with_npm(part: Part, folder: Path) -> None:
    for source in part.sources:
        shutil.copy(source, folder)
    _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder)


def _install_grafana_schema(folder: Path) -> None:
    _install_with_npm(parts.GRAFANA_SCHEMA, folder)


_BUILD: Mapping[Part, Callable[[Path], None]] = {
    parts.KAFKA: _build_kafka,
    parts.JAVA_PROGRAMS: _build_java_programs,
    parts.KAFKA_IMAGE: _build_kafka_image,
    parts.COLLECTOR: _build_collector,
    parts.FRANZ_CLIENT: _build_franz_client,
    parts.PROMETHEUS: _build_prometheus,
    parts.GRAFANA_SCHEMA: _install_grafana_schema,
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
