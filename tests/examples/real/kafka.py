"""Runs the programs of the image apache/kafka with Java, in the image's Kafka version."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.testbed import jvm, parts

#: The classes that the scripts of /opt/kafka/bin start.
_CLASSES: Final = {
    "/opt/kafka/bin/kafka-producer-perf-test.sh": "org.apache.kafka.tools.ProducerPerformance",
    "/opt/kafka/bin/kafka-consumer-perf-test.sh": "org.apache.kafka.tools.ConsumerPerformance",
}


def java(environment: Mapping[str, str] | None = None) -> list[str | Path]:
    """The command that runs a class of Kafka's.

    Args:
        environment: As the container has it; of its variables, KAFKA_LOG4J_OPTS is an argument.

    Raises:
        NotSetUpError: Kafka is not fetched.
    """
    jars = parts.EXAMPLES_KAFKA.require() / "jars"
    logging = parts.HERE / "kafka" / "log4j2.properties"
    options = (environment or {}).get("KAFKA_LOG4J_OPTS", f"-Dlog4j2.configurationFile={logging}")
    return ["java", *jvm.QUICK_START, *options.split(), "-cp", f"{jars}/*"]


def class_of(word: str) -> str:
    """A word of a command: a script's class, or the word itself."""
    return _CLASSES.get(word, word)


def set_up(folder: Path, environment: Mapping[str, str]) -> Path:
    """Write server.properties and format the data with the image's own class.

    Args:
        folder: Where its configuration goes.
        environment: As the container has it.

    Returns:
        The file server.properties.

    Raises:
        subprocess.CalledProcessError: The variables are wrong.
    """
    final = folder / "config"
    for path in (folder / "defaults", folder / "mounted", final):
        path.mkdir(parents=True)
    subprocess.run(
        [
            *java(),
            "kafka.docker.KafkaDockerWrapper",
            "setup",
            *("--default-configs-dir", folder / "defaults"),
            *("--mounted-configs-dir", folder / "mounted"),
            *("--final-configs-dir", final),
        ],
        env={"PATH": "/usr/bin:/bin", **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return final / "server.properties"
