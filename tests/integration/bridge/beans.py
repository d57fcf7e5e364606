"""Reads the MBeans of a broker, as jmx_exporter does."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.testbed import jvm
from tests.testbed.ports import LOOPBACK, free_port

_PROGRAM: Final = Path(__file__).with_name("Beans.java")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """MBeans of a pattern.

    Attributes:
        count: Their number.
        values: Numbers by name and attribute, of those that were read.
    """

    count: int
    values: dict[str, dict[str, float]]


class Jmx:
    """The JMX of a broker that starts with :attr:`flags`."""

    def __init__(self) -> None:
        self._port = free_port()

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of the JVM that open it, on loopback alone."""
        prefix = "-Dcom.sun.management.jmxremote"
        return (
            *jvm.QUICK_START,
            f"{prefix}.port={self._port}",
            f"{prefix}.rmi.port={self._port}",
            f"{prefix}.host={LOOPBACK}",
            f"{prefix}.authenticate=false",
            f"{prefix}.ssl=false",
            f"-Djava.rmi.server.hostname={LOOPBACK}",
        )

    def read(self, pattern: str, most: int = 10) -> Found:
        """Return the MBeans of a pattern, and the values of some of them."""
        command: list[str | Path] = ["java", _PROGRAM, str(self._port), pattern, str(most)]
        said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
        *lines, count = said.splitlines()
        values: dict[str, dict[str, float]] = {}
        for name, attribute, value in (line.split("\t") for line in lines):
            values.setdefault(name, {})[attribute] = float(value)
        return Found(count=int(count), values=values)
