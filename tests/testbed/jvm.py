"""Owns how the testbed's Java programs are called: class path, flags, class data archives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.testbed import parts

#: For short lives on few cores: start quickly, hold little.
QUICK_START: tuple[str, ...] = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:CICompilerCount=1",
    "-Xss512k",
    "-Xms48m",
    "-Xmx256m",
    "-XX:-UsePerfData",
)
#: For measuring what a broker costs once it is warm: both compilers, memory as it comes.
WARM: tuple[str, ...] = ("-XX:+UseSerialGC", "-Xms256m", "-Xmx512m", "-XX:-UsePerfData")

#: Standard output is for status lines.
_LOG_TO_STANDARD_ERROR = ("-Xlog:disable", "-Xlog:all=warning:stderr")

#: The archives in the image's folder.
BROKER_ARCHIVE = "broker.jsa"
PRODUCER_ARCHIVE = "producer.jsa"
CONSUMER_ARCHIVE = "consumer.jsa"


def class_path() -> list[Path]:
    """Return the class path; its order is fixed because archives work with one order.

    Raises:
        NotSetUpError: They are not there yet.
    """
    jars = sorted((parts.KAFKA.require() / "jars").glob("*.jar"))
    return [*jars, parts.JAVA_PROGRAMS.require() / "testbed.jar"]


def command(
    main: str,
    *arguments: str | Path,
    flags: tuple[str, ...] = QUICK_START,
    archive: Path | None = None,
    jars: Sequence[Path] | None = None,
    plugins: Sequence[Path] = (),
) -> list[str]:
    """The command that runs the class ``main``.

    Args:
        main: The class.
        arguments: Its arguments.
        flags: Flags of the JVM.
        archive: The class data archive, used where there is one.
        jars: The class path; None: :func:`class_path`, which archives are made for.
        plugins: Further jars behind it.
    """
    logging = parts.HERE / "kafka" / "log4j2.properties"
    sharing = [f"-XX:SharedArchiveFile={archive}"] if archive is not None and archive.exists() else []
    return [
        "java",
        *_LOG_TO_STANDARD_ERROR,
        *flags,
        *sharing,
        f"-Dlog4j2.configurationFile={logging}",
        "-Dlog4j2.disableJmx=true",
        "-cp",
        ":".join(map(str, [*(class_path() if jars is None else jars), *plugins])),
        main,
        *map(str, arguments),
    ]
