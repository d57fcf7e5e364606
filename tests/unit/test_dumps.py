"""The memory of programs that hold secrets: no core file, and no reader that is not privileged."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

REPORT = (
    "import json, resource\n"
    "from spark_streaming import dumps\n"
    "core = lambda: resource.getrlimit(resource.RLIMIT_CORE)[0]\n"
    "report = lambda: [dumps.allowed(), core()]\n"
)


def reports(code: str) -> list[list[object]]:
    # From a limit of its own, because the machine's may be 0 already.
    start = "import resource\nhard = resource.getrlimit(resource.RLIMIT_CORE)[1]\n"
    limit = "resource.setrlimit(resource.RLIMIT_CORE, (4096 if hard < 0 or hard > 4096 else hard, hard))\n"
    ran = subprocess.run(
        [sys.executable, "-c", start + limit + REPORT + code],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]


def test_dumps_are_forbidden_and_allowed_again() -> None:
    before, forbidden, after = reports(
        "print(json.dumps(report()))\n"
        "core_bytes = dumps.forbid()\n"
        "print(json.dumps(report()))\n"
        "dumps.allow(core_bytes)\n"
        "print(json.dumps(report()))"
    )
    assert forbidden == [False, 0]
    assert before[0] is True
    assert after == before


def test_serve_forbids_them_before_it_reads_its_configuration() -> None:
    assert reports(
        "import sys\n"
        "from receiver.cli import commands, serve\n"
        "serve._checked = lambda file: (print(json.dumps(report())), sys.exit(0))\n"
        "sys.argv = ['kafka-telemetry', 'serve', '--config', 'receiver.yaml']\n"
        "commands.main()"
    ) == [[False, 0]]


@pytest.mark.full
def test_the_rollup_forbids_them_before_it_reads_its_settings() -> None:
    assert reports(
        "import sys\n"
        "from receiver.cli import commands\n"
        "from spark_streaming import cli\n"
        "cli._settings = lambda options: (print(json.dumps(report())), sys.exit(0))\n"
        "sys.argv = ['kafka-telemetry', 'rollup', 'status']\n"
        "commands.main()"
    ) == [[False, 0]]
