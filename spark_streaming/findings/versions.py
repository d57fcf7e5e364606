"""Checks client software versions against lists of old and known bad versions.

The built-in list is ``software_versions.json``. Each entry has a reason and a source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

Severity = Literal["info", "warning", "critical"]

Role = Literal["producer", "consumer"]

ROLES: Final[tuple[Role, ...]] = get_args(Role)

#: From the least to the worst.
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)

_BOUND: Final = r"^\d{1,9}(\.\d{1,9}){0,7}$"

# Bounded, because int() refuses to parse thousands of digits.
_VERSION: Final = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,7})(?!\d)")
_EMBEDDED_LIBRDKAFKA: Final = re.compile(r"rdkafka-(v?\d.*)")
_CONFLUENT_BUILD: Final = re.compile(r"\d+\.\d+\.\d+-c(?:cs|e)")


class SoftwareVersions(BaseModel):
    """Range of versions of one client software that are old or known to be bad."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    client_software_name: str = Field(
        min_length=1,
        description="Name of the software. `librdkafka` also matches the library inside a binding. "
        "`confluent-kafka-java` matches Confluent's builds (`7.9.1-ccs`) of `apache-kafka-java`.",
    )
    at_least: str = Field(default="0", pattern=_BOUND, description="First version of the range.")
    before: str = Field(pattern=_BOUND, description="First version after the range.")
    severity: Severity = Field(default="warning", description="Severity of the finding.")
    role: Role | None = Field(
        default=None, description="Whether only producers or only consumers are affected; null: both."
    )
    reason: str = Field(min_length=1, description="What is wrong with these versions.")
    source: str = Field(min_length=1, description="Where the reason is documented.")

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.contains(self.at_least):
            raise ValueError(f"at_least ({self.at_least}) must be lower than before ({self.before})")
        return self

    def contains(self, version: str) -> bool:
        """Return whether a version is in the range. It needs a leading number."""
        numbers = _numbers(version)
        return numbers is not None and (_numbers(self.at_least) or ()) <= numbers < (
            _numbers(self.before) or ()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareVerdict:
    """Problems of one software version."""

    client_software_name: str
    """The name that the client sends (KIP-511)."""
    client_software_version: str
    severity: Severity
    """The worst severity of the reasons."""
    reasons: tuple[str, ...]
    """What is wrong, the worst first."""
    sources: tuple[str, ...]


@cache
def built_in_versions() -> dict[str, tuple[SoftwareVersions, ...]]:
    """Return the built-in version ranges by kind of finding."""
    text = (files(__package__) / "software_versions.json").read_text("utf-8")
    return TypeAdapter(dict[str, tuple[SoftwareVersions, ...]]).validate_json(text)


def judge_versions(
    software: Iterable[tuple[str, str]], ranges: Iterable[SoftwareVersions], role: Role
) -> list[SoftwareVerdict]:
    """Return a verdict for each software version that is in one of the ranges.

    Args:
        software: Names and versions that clients send (KIP-511).
        role: What the clients do. Ranges of the other role are ignored.
    """
    by_name: dict[str, list[SoftwareVersions]] = {}
    for entry in ranges:
        if entry.role in {None, role}:
            by_name.setdefault(entry.client_software_name, []).append(entry)
    verdicts = []
    for name, version in software:
        matches = [
            entry
            for known_name, known_version in _identities(name, version)
            for entry in by_name.get(known_name, ())
            if entry.contains(known_version)
        ]
        if matches:
            matches.sort(key=lambda entry: SEVERITIES.index(entry.severity), reverse=True)
            verdicts.append(
                SoftwareVerdict(
                    client_software_name=name,
                    client_software_version=version,
                    severity=matches[0].severity,
                    reasons=tuple(entry.reason for entry in matches),
                    sources=tuple(entry.source for entry in matches),
                )
            )
    return verdicts


def _identities(name: str, version: str) -> tuple[tuple[str, str], ...]:
    if name == "apache-kafka-java" and _CONFLUENT_BUILD.fullmatch(version):
        # The version number is that of Confluent Platform, so ranges of Apache versions don't
        # apply.
        return (("confluent-kafka-java", version),)
    embedded = _EMBEDDED_LIBRDKAFKA.search(version)
    if embedded is not None:
        return (name, version), ("librdkafka", embedded[1])
    if name.startswith("confluent-kafka-"):
        # Confluent's bindings have the version number of the librdkafka that they contain.
        return (name, version), ("librdkafka", version)
    return ((name, version),)


def _numbers(version: str) -> tuple[int, ...] | None:
    """Parse the leading numbers of a version. ``2.5`` and ``2.5.0`` are equal."""
    found = _VERSION.match(version)
    if found is None:
        return None
    numbers = [int(number) for number in found[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
