"""Runs Kafka's own command-line tools, of Kafka 4.3.1, against a broker."""

from __future__ import annotations

import subprocess
from typing import Final

from tests.testbed import jvm, parts

_TIMEOUT_S: Final = 180


def client_metrics(bootstrap: str, *arguments: str) -> str:
    """Run ``kafka-client-metrics.sh`` and return what it printed.

    Raises:
        NotSetUpError: The tools are not there yet.
        AssertionError: The tool failed; shows its output.
    """
    return _run("org.apache.kafka.tools.ClientMetricsCommand", bootstrap, *arguments)


def configs(bootstrap: str, *arguments: str) -> str:
    """Run ``kafka-configs.sh``; errors as above."""
    return _run("kafka.admin.ConfigCommand", bootstrap, *arguments)


def _run(main: str, bootstrap: str, *arguments: str) -> str:
    jars = parts.EXAMPLES_KAFKA.require() / "jars"
    command = [
        "java",
        *jvm.QUICK_START,
        "-cp",
        f"{jars}/*",
        main,
        "--bootstrap-server",
        bootstrap,
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    assert done.returncode == 0, f"{main} {' '.join(arguments)}:\n{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout
