"""The types of a check and of its verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from receiver.testkit.recording import ClientRecording


class Severity(StrEnum):
    """How much a failed check counts."""

    MUST = "must"
    """A broker or a receiver can't work with the client, or loses metrics."""

    SHOULD = "should"
    """The specification recommends it, or other clients do otherwise."""

    INFORMATIVE = "informative"
    """Good to know of a client."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found.

    Attributes:
        passed: None if it could not be tried.
        seen: What was seen, or what is missing.
    """

    passed: bool | None
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckText:
    """What a check is, without its function.

    Attributes:
        id: Its id, which never changes its meaning.
        title: What a good client or broker does, in a few words.
        sentence: The specification's sentence, in short.
        source: The specification and its section.
        severity: How much it counts.
        repeat: How to see it again.
    """

    id: str
    title: str
    sentence: str
    source: str
    severity: Severity
    repeat: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(CheckText):
    """A check of a client."""

    judge: Callable[[ClientRecording], Verdict]


def passed(seen: str) -> Verdict:
    """Return the verdict on a client that does it right."""
    return Verdict(passed=True, seen=seen)


def failed(seen: str) -> Verdict:
    """Return the verdict on a client that does it wrong."""
    return Verdict(passed=False, seen=seen)


def untried(missing: str) -> Verdict:
    """Return the verdict of a check that could not be tried."""
    return Verdict(passed=None, seen=f"not tried: {missing}")
