"""The verdicts on a client or a broker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from receiver.testkit.checks.check import CheckText, Severity, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """A check and its verdict."""

    check: CheckText
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(ABC):
    """Who was judged, and the verdicts."""

    judgements: tuple[Judgement, ...]
    """One for each check, in the table's order."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Who was judged, on one line."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """What a report says besides the verdicts, as JSON values."""

    def failed(self, severity: Severity) -> list[Judgement]:
        """Return the failed checks of a severity."""
        return [
            judgement
            for judgement in self.judgements
            if judgement.verdict.passed is False and judgement.check.severity is severity
        ]
