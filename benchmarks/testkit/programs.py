"""The real clients that the test kit is run against, and how to get them.

Java clients come with the Kafka releases that the tests use. Other clients come from Maven
Central, PyPI, npm and the Go proxy, into a folder of the user's cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.testbed import jvm, older_kafka, parts
from tests.testbed.cache import cache_folder, recipe_hash

_CLIENTS: Final = Path(__file__).parent / "clients"
_TREE: Final = _CLIENTS.parents[2]

LIBRDKAFKA: Final = ("2.5.0", "2.5.3", "2.6.1", "2.8.2", "2.10.0", "2.10.1", "2.12.2", "2.14.2", "2.16.1")
FRANZ_GO: Final = ("v1.21.0", "v1.21.3")
AIOKAFKA: Final = "0.14.0"

#: Packages of npm. Confluent's is left out: it comes without the library, and takes half an hour to
#: build it.
NODE: Final[Mapping[str, Sequence[str]]] = {
    "@platformatic/kafka": ["@platformatic/kafka@2.12.1"],
    # librdkafka 2.12.1, whose library is a package of its own.
    "kafka-crab-js": ["kafka-crab-js@5.0.0", "kafka-crab-js-linux-x64-gnu@5.0.0"],
    "kafkajs": ["kafkajs@2.2.4"],
}
#: Modules of Go besides franz-go, by the name of the library in the program.
GO: Final[Mapping[str, str]] = {
    "confluent-kafka-go": "github.com/confluentinc/confluent-kafka-go/v2@v2.11.1",
    "kafka-go": "github.com/segmentio/kafka-go@v0.4.51",
    "sarama": "github.com/IBM/sarama@v1.61.1",
}

#: Releases of kafka-clients from Maven Central, with the release whose other jars they run with.
JAVA: Final[Mapping[str, str]] = {
    "3.8.1": "3.9.2",
    "3.9.1": "3.9.2",
    "4.0.0": "4.1.2",
    "4.0.1": "4.1.2",
}

#: The libraries of codecs that Java itself lacks.
_CODEC_JARS: Final = ("zstd-jni", "lz4-java", "snappy-java")


@dataclass(frozen=True, slots=True)
class Program:
    """A client that takes the arguments of the testbed's clients.

    Attributes:
        name: Its name, of letters, digits, dots and dashes.
        command: The beginning of its command line.
        modes: What it can be.
        environment: Further environment variables.
    """

    name: str
    command: Sequence[str | Path]
    modes: tuple[str, ...] = ("producer", "consumer")
    environment: Mapping[str, str] = field(default_factory=dict)


def programs(say: Callable[[str], None]) -> list[Program]:
    """Fetch what is missing, and return every client that can be had; say what can't."""
    found: list[Program] = []
    for make in (_java, _librdkafka, _franz_go, _go, _node, _pythons):
        for name, get in make().items():
            try:
                found.append(get())
            except (OSError, subprocess.CalledProcessError, parts.NotSetUpError) as error:
                say(f"{name} can't be had: {error}")
    return found


def _java() -> dict[str, Callable[[], Program]]:
    made: dict[str, Callable[[], Program]] = {"java 4.4": partial(_one_java, "4.4", jvm.class_path)}
    for version in sorted([*JAVA, *parts.OLDER_KAFKAS]):
        made[f"java {version}"] = partial(_one_java, version, partial(_jars, version))
        made[f"java {version}, gzip only"] = partial(
            _one_java, f"{version}-gzip-only", partial(_jars, version, _CODEC_JARS), modes=("producer",)
        )
    return made


def _one_java(
    name: str,
    jars: Callable[[], Sequence[Path]],
    modes: tuple[str, ...] = ("producer", "consumer", "admin"),
) -> Program:
    return Program(f"java-{name}", jvm.command("AnyKafka", jars=[_any_kafka(), *jars()]), modes)


def _any_kafka() -> Path:
    """Return the folder with the Java program, which is compiled once for all releases."""
    source = _CLIENTS / "AnyKafka.java"
    jars = ":".join(map(str, jvm.class_path()))
    return _fetched(
        f"any-kafka-{recipe_hash([source], jars)}",
        lambda into: _run("javac", "--release", "17", "-cp", jars, "-d", into, source),
    )


def _jars(version: str, without: Sequence[str] = ()) -> Sequence[Path]:
    """Return the class path of a release, without the jars with some beginnings."""
    left_out = (*without, "kafka-clients-") if version in JAVA else tuple(without)
    of_release = older_kafka.class_path(parts.OLDER_KAFKAS[JAVA.get(version, version)].require())
    jars = [jar for jar in of_release if not jar.name.startswith(left_out)]
    return [_kafka_clients(version), *jars] if version in JAVA else jars


def _kafka_clients(version: str) -> Path:
    artifact = f"org.apache.kafka:kafka-clients:{version}"
    folder = _fetched(
        f"kafka-clients-{version}",
        lambda into: _run(
            *("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={into}")
        ),
    )
    return folder / f"kafka-clients-{version}.jar"


def _librdkafka() -> dict[str, Callable[[], Program]]:
    return {f"librdkafka {version}": partial(_one_librdkafka, version) for version in LIBRDKAFKA}


def _one_librdkafka(version: str) -> Program:
    folder = _pip_installed("confluent-kafka", version)
    command = [sys.executable, "-m", "tests.testbed.clients.librdkafka"]
    return Program(f"librdkafka-{version}", command, environment={"PYTHONPATH": f"{folder}:{_TREE}"})


def _franz_go() -> dict[str, Callable[[], Program]]:
    current = {"franz-go": lambda: Program("franz-go", [parts.FRANZ_CLIENT.require() / "franz-client"])}
    older = {f"franz-go {v}": partial(_older_franz_go, v) for v in FRANZ_GO}
    return current | older


def _older_franz_go(version: str) -> Program:
    def build(into: Path) -> None:
        source = into / "source"
        shutil.copytree(_TREE / "tests" / "testbed" / "clients" / "franz", source)
        environment = {**os.environ, "GOFLAGS": "-mod=mod"}
        _run("go", "get", f"github.com/twmb/franz-go@{version}", cwd=source, environment=environment)
        _run("go", "build", "-o", into / "client", ".", cwd=source, environment=environment)

    folder = _fetched(f"franz-go-{version}", build)
    return Program(f"franz-go-{version.removeprefix('v')}", [folder / "client"])


def _go() -> dict[str, Callable[[], Program]]:
    return {name: partial(_one_go, name) for name in GO}


def _one_go(name: str) -> Program:
    def build(into: Path) -> None:
        source = into / "source"
        source.mkdir()
        shutil.copy(_CLIENTS / "main.go", source)
        _run("go", "mod", "init", "clients", cwd=source)
        _run("go", "get", *GO.values(), cwd=source)
        _run("go", "build", "-o", into / "client", ".", cwd=source)

    folder = _fetched("-".join(["go", *(module.rpartition("@")[2] for module in GO.values())]), build)
    modes = ("producer", "consumer") if name.startswith("confluent") else ("producer",)
    return Program(name, [folder / "client", "--library", name], modes)


def _node() -> dict[str, Callable[[], Program]]:
    return {name: partial(_one_node, name) for name in NODE}


def _one_node(package: str) -> Program:
    name = package.removeprefix("@").replace("/", "-")

    def install(into: Path) -> None:
        _run("npm", "install", "--silent", "--prefix", into, *NODE[package])

    folder = _fetched(f"{name}-{NODE[package][0].rpartition('@')[2]}", install)
    shutil.copy(_CLIENTS / "node.mjs", folder / "client.mjs")
    modes = ("producer", "consumer") if name == "kafka-crab-js" else ("producer",)
    return Program(name, ["node", folder / "client.mjs", "--library", package], modes)


def _pythons() -> dict[str, Callable[[], Program]]:
    return {"kafka-python": partial(_one_python, "kafka-python"), "aiokafka": _one_aiokafka}


def _one_aiokafka() -> Program:
    return _one_python("aiokafka", _pip_installed("aiokafka", AIOKAFKA, dependencies=True))


def _one_python(library: str, *packages: Path) -> Program:
    command = [sys.executable, "-m", "benchmarks.testkit.clients.pythons", "--library", library]
    path = ":".join(map(str, (*packages, _TREE)))
    return Program(library, command, ("producer",), {"PYTHONPATH": path})


def _pip_installed(package: str, version: str, *, dependencies: bool = False) -> Path:
    """Return a folder with a package of PyPI."""
    without = () if dependencies else ("--no-deps",)
    return _fetched(
        f"{package}-{version}",
        lambda into: _run(
            *(sys.executable, "-m", "pip", "install", "--quiet", *without, "--only-binary=:all:"),
            *("--target", into, f"{package}=={version}"),
        ),
    )


def _fetched(name: str, fetch: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, which is fetched whole or not at all."""
    folder = cache_folder() / "testkit-clients" / name
    if not folder.exists():
        partial = folder.with_name(f"{name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        fetch(partial)
        partial.rename(folder)
    return folder


def _run(*command: str | Path, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
    subprocess.run(command, check=True, cwd=cwd, env=environment, stdout=subprocess.DEVNULL)
