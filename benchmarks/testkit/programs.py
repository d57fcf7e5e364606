"""The real clients that the test kit is run against, and how to get them.

Java clients come with the Kafka releases that the tests use. Other versions come from PyPI, npm and
the Go proxy, into a folder of the user's cache.
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
from tests.testbed.cache import cache_folder

_HERE: Final = Path(__file__).parent
_TREE: Final = _HERE.parents[1]

LIBRDKAFKA: Final = ("2.5.0", "2.5.3", "2.6.1", "2.8.2", "2.10.0", "2.10.1", "2.12.2", "2.14.2", "2.16.1")
FRANZ_GO: Final = ("v1.21.0", "v1.21.3")
PLATFORMATIC: Final = "2.12.1"

#: Releases of kafka-clients from Maven Central that run with the other jars of Kafka 3.9.
JAVA: Final = ("3.8.1", "3.9.1")

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
    for make in (_java, _librdkafka, _franz_go, _platformatic, _kafka_python):
        for name, get in make().items():
            try:
                found.append(get())
            except (OSError, subprocess.CalledProcessError, parts.NotSetUpError) as error:
                say(f"{name} can't be had: {error}")
    return found


def _java() -> dict[str, Callable[[], Program]]:
    made: dict[str, Callable[[], Program]] = {"java 4.4": _java_of_the_broker}
    for version in sorted([*JAVA, *parts.OLDER_KAFKAS]):
        made[f"java {version}"] = partial(_older_java, version)
        made[f"java {version}, gzip only"] = partial(_older_java, version, without=_CODEC_JARS)
    return made


def _java_of_the_broker() -> Program:
    return Program("java-4.4", jvm.command("kafkatelemetry.testbed.Client"))


def _older_java(version: str, without: Sequence[str] = ()) -> Program:
    part = parts.OLDER_KAFKAS.get(version, parts.OLDER_KAFKAS["3.9.2"])
    left_out = list(without)
    jars: list[Path] = []
    if version in JAVA:
        left_out.append("kafka-clients-")
        jars.append(_kafka_clients(version))
    jars += [
        jar for jar in older_kafka.class_path(part.require()) if not jar.name.startswith(tuple(left_out))
    ]
    jars.append(parts.JAVA_PROGRAMS.require() / "testbed.jar")
    # The testbed's consumer closes as Kafka 4.1 and later do.
    modes = ("producer", "consumer") if version >= "4.1" else ("producer",)
    name = f"java-{version}" + ("-gzip-only" if without else "")
    return Program(name, jvm.command("kafkatelemetry.testbed.Client", jars=jars), modes)


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
    folder = _fetched(
        f"confluent-kafka-{version}",
        lambda into: _run(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"),
            *("--target", into, f"confluent-kafka=={version}"),
        ),
    )
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


def _platformatic() -> dict[str, Callable[[], Program]]:
    return {"@platformatic/kafka": _one_platformatic}


def _one_platformatic() -> Program:
    def install(into: Path) -> None:
        _run("npm", "install", "--silent", "--prefix", into, f"@platformatic/kafka@{PLATFORMATIC}")

    folder = _fetched(f"platformatic-{PLATFORMATIC}", install)
    shutil.copy(_HERE / "platformatic.mjs", folder / "client.mjs")
    return Program("platformatic", ["node", folder / "client.mjs"], ("producer",))


def _kafka_python() -> dict[str, Callable[[], Program]]:
    command = [sys.executable, "-m", "benchmarks.testkit.kafka_python"]
    environment = {"PYTHONPATH": str(_TREE)}
    return {"kafka-python": lambda: Program("kafka-python", command, ("producer",), environment)}


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
