"""Draws the dashboards with metrics of a made-up fleet, rolled up in a new database."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.dashboards import draw
from tests.dashboards.pushes import write_spool
from tests.testbed.postgres import Postgres
from tests.testbed.process import ScratchFolder

_ROLLUP_TIMEOUT_S = 900.0
#: The client of the dashboard of one client: one with many metrics.
_CHOSEN = (
    *("--set", "client=warehouse-4"),
    *("--set", "metric=org.apache.kafka.consumer.fetch.manager.records.consumed.total"),
)


def main() -> int:
    """Run the command line of :mod:`tests.dashboards.draw` and return the exit status."""
    with Postgres() as server, server.database() as url, ScratchFolder("pictures") as scratch:
        pushes = write_spool(scratch.path / "spool", end=datetime.now(UTC))
        sys.stdout.write(f"rolling up {pushes} pushes\n")
        sys.stdout.flush()
        source = ["--source", "spool_files", "--path", str(scratch.path / "spool")]
        checkpoint = ["--checkpoint", str(scratch.path / "checkpoint")]
        subprocess.run(
            [
                Path(sys.executable).with_name("kafka-telemetry"),
                *("rollup", "run", *source, *checkpoint, "--once"),
            ],
            env={**os.environ, "KAFKA_TELEMETRY_ROLLUP_POSTGRES": url},
            check=True,
            timeout=_ROLLUP_TIMEOUT_S,
        )
        return draw.main(["--postgres", url, *_CHOSEN, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
