"""Builds the bridge, which runs in brokers, from ``plugins/broker_bridge``.

The result is one jar of Java 11 byte code without dependencies. Fetched jars, which it is compiled
against, must match the checksums in ``jars.sha256``.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deploy.project import PROJECT

#: The folder of the sources.
BRIDGE: Final = Path(__file__).parents[1] / "plugins" / "broker_bridge"
#: The name of the jar.
JAR: Final = "kafka-telemetry-bridge.jar"

_SOURCES: Final = BRIDGE / "src"
_CHECKSUMS: Final = BRIDGE / "jars.sha256"
#: The only class that names the second interface; brokers before 4.2 can't load it.
_SECOND: Final = "BridgeExporter.java"
_JAVAC: Final = ("javac", "--release", "11", "-encoding", "UTF-8", "-Xlint:all,-path", "-Werror")
#: Fixed, so that the same sources and JDK make the same jar.
_DATE: Final = "2000-01-01T00:00:00Z"
_TIMEOUT_S: Final = 900.0
_TOOLS: Final = {
    "javac": "a JDK of Java 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    "jar": "a JDK of Java 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    "mvn": "Maven (Debian: apt-get install maven)",
}


class BridgeError(Exception):
    """The bridge can't be built; the message says what is missing."""


def build(folder: Path) -> Path:
    """Build the jar into a folder and return its path.

    Raises:
        BridgeError: A tool is missing, or a step failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bridge-") as name:
        work = Path(name)
        first, second = _fetch("first", work), _fetch("second", work)
        classes = work / "classes"
        sources = sorted(_SOURCES.rglob("*.java"))
        core = [source for source in sources if source.name != _SECOND]
        exporter = [source for source in sources if source.name == _SECOND]
        _run([*_JAVAC, "-cp", f"{first}/*", "-d", str(classes), *map(str, core)])
        _run([*_JAVAC, "-cp", f"{second}/*:{classes}", "-d", str(classes), *map(str, exporter)])
        manifest = work / "manifest"
        manifest.write_text(f"Implementation-Version: {PROJECT['version']}\n")
        for licence in ("LICENSE", "NOTICE"):
            (classes / "META-INF").mkdir(exist_ok=True)
            shutil.copy(BRIDGE.parents[1] / licence, classes / "META-INF")
        jar = work / JAR
        _run(
            [
                "jar",
                "--create",
                f"--date={_DATE}",
                f"--file={jar}",
                f"--manifest={manifest}",
                *("-C", str(classes), "."),
            ]
        )
        return Path(shutil.copy(jar, folder))


def _fetch(profile: str, work: Path) -> Path:
    """Fetch what a part is compiled against, and check it."""
    folder = work / profile
    flags = ("--batch-mode", "--quiet", "--strict-checksums", "--activate-profiles", profile)
    copy = ("dependency:copy-dependencies", f"-DoutputDirectory={folder}")
    _run(["mvn", *flags, f"--file={BRIDGE / 'pom.xml'}", *copy])
    lines = (line.split() for line in _CHECKSUMS.read_text("utf-8").splitlines())
    locked = {jar: digest for digest, jar in lines}
    for jar in sorted(folder.glob("*.jar")):
        found = hashlib.sha256(jar.read_bytes()).hexdigest()
        if found != locked.get(jar.name):
            raise BridgeError(
                f"{jar.name} was fetched with the SHA-256 {found}, and {_CHECKSUMS} has "
                f"{locked.get(jar.name, 'none')}: if pom.xml changed, write the new one there; otherwise it "
                "is not the file that was tested, so delete it from ~/.m2/repository and try again"
            )
    return folder


def _run(command: Sequence[str]) -> None:
    name = command[0]
    if shutil.which(name) is None:
        raise BridgeError(f"{name} is needed to build the bridge: install {_TOOLS[name]}")
    try:
        done = subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BridgeError(f"`{name}` was stopped after {_TIMEOUT_S:g} s") from None
    if done.returncode:
        output = done.stdout[-3000:].strip()
        raise BridgeError(f"`{' '.join(command)[:300]}` failed with status {done.returncode}:\n{output}")


def main() -> int:
    """Build the jar where ``--out`` says, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m deploy.broker_bridge", description=__doc__)
    parser.add_argument("--out", type=Path, default=BRIDGE / "build", help="folder for the jar")
    try:
        jar = build(parser.parse_args().out)
    except BridgeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{jar}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
