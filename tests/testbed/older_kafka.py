"""Fetches older releases of Kafka, and formats a data folder with each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.testbed import jvm
from tests.testbed.commands import fetch_jars, run
from tests.testbed.parts import HERE

#: The cluster id of the formatted folder; a broker writes its own over it.
_CLUSTER_ID = "kafka-telemetry-testQQ"


def build(version: str, folder: Path) -> None:
    """Fetch a release into ``folder/jars``, and format ``folder/data``.

    Raises:
        BuildError: A step failed.
    """
    versions = {"kafka.version": version, "kafka-tools-api.version": version}
    fetch_jars(HERE / "kafka", folder, **versions)
    settings = folder / "format.properties"
    settings.write_text((HERE / "kafka" / "storage.properties").read_text() + f"log.dirs={folder / 'data'}\n")
    tool = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", settings)
    run(jvm.command(*tool, jars=class_path(folder)))


def class_path(folder: Path) -> Sequence[Path]:
    """Return the class path of a release that was built into a folder."""
    return sorted((folder / "jars").glob("*.jar"))
