"""Findings and the report of an examination.

Pure. :meth:`Report.document` is the schema of ``--json``, which docs/doctor.md describes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

#: Version of the JSON document. It rises when a field or a value is removed or changes its meaning.
SCHEMA_VERSION: Final = 1

#: Longest text in characters. A peer may choose a part of it.
_MAX_CHARS: Final = 600


class State(StrEnum):
    """Result of one check."""

    OK = "ok"
    #: It works, and somebody should look at it.
    WARNING = "warning"
    FAILED = "failed"
    #: It may be right, but this was not proven.
    UNKNOWN = "unknown"


class Area(StrEnum):
    """The part of the setup that a finding is about, in the order of the report."""

    CONFIGURATION = "configuration"
    PORTS = "ports"
    TLS = "tls"
    BROKER = "broker"
    RECEIVER = "receiver"
    LISTENER = "listener"
    PLUGIN = "plugin"
    SUBSCRIPTION = "subscription"
    CLIENT = "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    area: Area
    check: str
    """Stable name of the check, unique within its area."""
    subject: str
    """What was checked, for example ``listener CLIENT``."""
    state: State
    seen: str
    do: str = ""
    """What to do; empty only for :attr:`State.OK`."""

    def __post_init__(self) -> None:
        if self.state is not State.OK and not self.do:
            raise ValueError(f"a finding says what to do: {self.area}.{self.check}")
        for name in ("subject", "seen", "do"):
            text = " ".join(getattr(self, name).split())
            if len(text) > _MAX_CHARS:
                text = f"{text[: _MAX_CHARS - 3]}..."
            object.__setattr__(self, name, text)


def ok(area: Area, check: str, subject: str, seen: str) -> Finding:
    """Return a finding that something is as it should be."""
    return Finding(area=area, check=check, subject=subject, state=State.OK, seen=seen)


def warning(area: Area, check: str, subject: str, seen: str, do: str) -> Finding:
    """Return a finding that something works and should be otherwise."""
    return Finding(area=area, check=check, subject=subject, state=State.WARNING, seen=seen, do=do)


def failed(area: Area, check: str, subject: str, seen: str, do: str) -> Finding:
    """Return a finding that something is wrong."""
    return Finding(area=area, check=check, subject=subject, state=State.FAILED, seen=seen, do=do)


def unknown(area: Area, check: str, subject: str, seen: str, do: str) -> Finding:
    """Return a finding that something was not proven."""
    return Finding(area=area, check=check, subject=subject, state=State.UNKNOWN, seen=seen, do=do)


class Report:
    """All findings, sorted by area and otherwise in the order given; each once."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        order = list(Area)
        self.findings = sorted(dict.fromkeys(findings), key=lambda finding: order.index(finding.area))

    @property
    def proven(self) -> bool:
        """Whether nothing failed and nothing is unknown."""
        return bool(self.findings) and not any(
            finding.state in {State.FAILED, State.UNKNOWN} for finding in self.findings
        )

    @property
    def counts(self) -> dict[State, int]:
        """Number of findings by state."""
        counted = Counter(finding.state for finding in self.findings)
        return {state: counted[state] for state in State}

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        return {
            "version": SCHEMA_VERSION,
            "proven": self.proven,
            "counts": {str(state): count for state, count in self.counts.items()},
            "findings": [{**asdict(finding), "do": finding.do or None} for finding in self.findings],
        }
