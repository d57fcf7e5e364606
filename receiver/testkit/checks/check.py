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
    """What a check found."""

    passed: bool | None
    """None if it could not be tried."""
    seen: str
    """What was seen, or what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckText:
    """What a check is, without its function."""

    id: str
    """Its id, which never changes its meaning."""
    title: str
    """What a good client or broker does, in a few words."""
    sentence: str
    """The specification's sentence, in short."""
    source: str
    """The specification and its section."""
    severity: Severity
    """How much it counts."""
    repeat: str
    """How to see it again."""


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
