"""Runs Kafka's own command-line tools, of Kafka 4.3.1, against a broker."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

from tests.testbed import jvm, parts

_TIMEOUT_S: Final = 180


#: The class that each of Kafka's scripts starts.
_MAINS: Final = {
    "kafka-client-metrics.sh": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}


def script(name: str, arguments: Sequence[str], *, stdin: str = "") -> str:
    """Run the program of a script such as ``kafka-configs.sh``; errors as below."""
    done = subprocess.run(
        command(name, arguments),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, f"{name} {' '.join(arguments)}:\n{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout


def command(name: str, arguments: Sequence[str]) -> list[str]:
    """Return what a script runs.

    Raises:
        NotSetUpError: The tools are not there yet.
    """
    jars = parts.EXAMPLES_KAFKA.require() / "jars"
    return ["java", *jvm.QUICK_START, "-cp", f"{jars}/*", _MAINS[name], *arguments]


def client_metrics(bootstrap: str, *arguments: str) -> str:
    """Run ``kafka-client-metrics.sh`` and return what it printed.

    Raises:
        NotSetUpError: The tools are not there yet.
        AssertionError: The tool failed; shows its output.
    """
    return script("kafka-client-metrics.sh", ["--bootstrap-server", bootstrap, *arguments])


def configs(bootstrap: str, *arguments: str) -> str:
    """Run ``kafka-configs.sh``; errors as above."""
    return script("kafka-configs.sh", ["--bootstrap-server", bootstrap, *arguments])
