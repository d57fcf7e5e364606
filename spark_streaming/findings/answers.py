"""Findings as people and programs ask for them: filters and answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
import re2

from spark_streaming.findings.advice import advice
from spark_streaming.findings.settings import KINDS
from spark_streaming.findings.statements import statement
from spark_streaming.findings.versions import SEVERITIES

#: Client ids, principals and owners that an answer names.
_MAX_NAMES: Final = 10
#: The filters by a client's names, in the order of a client in ``answers.sql``.
_PATTERNS: Final = ("client_id", "principal", "group", "owner")
#: Lists of an answer, by the place of the name in a client.
_LISTS: Final = {"client_ids": 0, "principals": 1, "owners": 3}
_SOFTWARE: Final = len(_PATTERNS)
#: The memory of a pattern's program, in bytes.
_PATTERN_MEMORY: Final = 1 << 20
#: What a finding is about, and how severe it is.
SUBJECT: Final = (
    "kind",
    "severity",
    "cluster_id",
    "client_software_name",
    "client_software_version",
    "client_id",
    "client_instance_id",
    "principal",
    "group_id",
)
_COLUMNS: Final = (
    "id",
    *SUBJECT,
    "began_at",
    "found_at",
    "held_at",
    "ended_at",
    "resolved_at",
    "summary",
    "evidence",
)


class FilterError(ValueError):
    """A filter is wrong; the text names it, its value and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFilter:
    """Which findings to return. All that are given must hold.

    Raises:
        FilterError: A pattern, kind or severity is wrong.
    """

    client_id: str | None = None
    """A regular expression (RE2) that matches the whole client id of a client that the finding is
    about: a member of its group, or one that runs its version."""
    principal: str | None = None
    """The same of the principal."""
    group: str | None = None
    """The same of the consumer group."""
    owner: str | None = None
    """The same of the client's owner, by the receiver's label ``client_owner``."""
    kinds: tuple[str, ...] = ()
    """Kinds; empty: all."""
    severity: str = "info"
    """The least severity."""
    since: datetime | None = None
    """Only findings whose condition held at this time or later."""
    is_open: bool = True
    """No resolved findings."""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise FilterError(f"severity: {self.severity!r}: expected {', '.join(SEVERITIES)}")
        for kind in self.kinds:
            if kind not in KINDS:
                raise FilterError(f"kind: {kind!r}: expected one of {', '.join(KINDS)}")
        for name, pattern in self._patterns():
            _compile(name, pattern)

    def _patterns(self) -> Iterator[tuple[str, str]]:
        for name in _PATTERNS:
            if (pattern := getattr(self, name)) is not None:
                yield name, pattern

    def selects(self, clients: Sequence[Sequence[str | None]]) -> bool:
        """Return whether one of the clients matches all patterns.

        A client is its client id, principal, group and owner. Further texts are ignored.
        """
        patterns = [_compile(name, getattr(self, name)) for name in _PATTERNS]
        if all(pattern is None for pattern in patterns):
            return True
        return any(
            all(
                pattern is None or (text is not None and pattern.fullmatch(text.encode()) is not None)
                for pattern, text in zip(patterns, client, strict=False)
            )
            for client in clients
        )


def _compile(name: str, pattern: str | None) -> Any:
    if pattern is None:
        return None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError):
        raise FilterError(
            f"{name}: {pattern[:100]!r} is no regular expression (RE2): write \\ in front of . * + ( ["
        ) from None


def answers(connection: psycopg.Connection[Any], asked: FindingFilter) -> list[dict[str, Any]]:
    """Return findings, the most severe first, as values that JSON can hold.

    Args:
        connection: A connection to the store whose role may read the views.
    """
    rows = connection.execute(
        statement("answers"),
        {
            "is_open": asked.is_open,
            "kinds": list(asked.kinds or KINDS),
            "severities": list(SEVERITIES[SEVERITIES.index(asked.severity) :]),
            "since": asked.since,
        },
    ).fetchall()
    return [_answer(row) for row in rows if asked.selects(row[-1])]


def _answer(row: Sequence[Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in zip(_COLUMNS, row[:-1], strict=True)
    }
    for name, at in _LISTS.items():
        names = sorted({client[at] for client in row[-1]} - {None})
        answer[name] = {"count": len(names), "first": names[:_MAX_NAMES]}
    answer["advice"] = advice(answer["kind"], answer["evidence"], {client[_SOFTWARE] for client in row[-1]})
    return answer


def open_findings(connection: psycopg.Connection[Any]) -> dict[tuple[str, str], int]:
    """Return the numbers of open findings by kind and severity, with zeros."""
    found = connection.execute(
        "SELECT kind, severity, count(*) FROM telemetry.finding WHERE resolved_at IS NULL GROUP BY 1, 2"
    ).fetchall()
    counts = {(kind, severity): 0 for kind in KINDS for severity in SEVERITIES}
    return counts | {(kind, severity): count for kind, severity, count in found}
