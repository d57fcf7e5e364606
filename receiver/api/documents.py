"""The bodies of requests, for the OpenAPI document.

The telemetry core validates them (:mod:`receiver.telemetry.subscription_document`). A test compares
the fields of both. The patterns say what the core accepts, so that programs can be generated and
tested from the document; no pattern can say what RE2 accepts.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from receiver.telemetry.owners import MAX_EXPECTED, MAX_TEAM, MAX_TEXT
from receiver.telemetry.selectors import NEGATION, SELECTORS
from receiver.telemetry.subscription_checks import (
    DEFAULT_INTERVAL_MS,
    MAX_DESCRIPTION_LENGTH,
    MAX_INTERVAL_MS,
    MAX_LABEL_LENGTH,
    MAX_LABELS,
    MAX_METRICS,
    MAX_NAME_LENGTH,
    MAX_PATTERN_LENGTH,
    MIN_INTERVAL_MS,
    Temporality,
)

# Without control characters. In a form that Python, JavaScript and Go (Helm) read alike.
_LINE: Final = "^[^\\x00-\\x1f\\x7f-\\x9f\u2028\u2029]*$"
_LINES: Final = "^[^\\x00-\\x09\\x0b-\\x1f\\x7f-\\x9f\u2028\u2029]*$"

#: A name, for parameters too.
NAME_SCHEMA: Final[dict[str, Any]] = {"minLength": 1, "maxLength": MAX_NAME_LENGTH, "pattern": _LINE}

#: The name of an owner, for parameters.
TEAM_SCHEMA: Final[dict[str, Any]] = {"minLength": 1, "maxLength": MAX_TEAM, "pattern": _LINE}

_SELECTORS: Final = (
    f"Selectors: {', '.join(SELECTORS)}. `{NEGATION}` behind a selector's name: the pattern must not match."
)
_CONDITIONS: Final[dict[str, Any]] = {
    "propertyNames": {"enum": [*SELECTORS, *(f"{name}{NEGATION}" for name in SELECTORS)]}
}
_LABEL_KEYS: Final[dict[str, Any]] = {
    "propertyNames": {"pattern": r"^[A-Za-z0-9]([A-Za-z0-9_.\-/]{0,61}[A-Za-z0-9])?$"}
}
_READ_ONLY: Final[dict[str, Any]] = {"readOnly": True}

_Prefix = Annotated[str, Field(json_schema_extra={"pattern": r"^(\*|[A-Za-z0-9_][A-Za-z0-9_.\-/]{0,254})?$"})]
_Metrics = Annotated[list[_Prefix], Field(max_length=MAX_METRICS)]
_Interval = Annotated[int, Field(ge=MIN_INTERVAL_MS, le=MAX_INTERVAL_MS)]
_Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
_Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_LENGTH, json_schema_extra={"pattern": _LINES})]
_Pattern = Annotated[str, Field(max_length=MAX_PATTERN_LENGTH, json_schema_extra={"format": "regex"})]
_Label = Annotated[str, Field(max_length=MAX_LABEL_LENGTH, json_schema_extra={"pattern": _LINE})]
_ByReceiver = "Set by the receiver and ignored in a request, so that an answer can be sent back."


class _Common(BaseModel):
    """The fields that all bodies have."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool | None = Field(default=None, description="Whether it applies; null: true.")
    expires_at: _Time | None = Field(
        default=None,
        description="When it ends by itself, as RFC 3339 with a zone; null: never.",
        examples=["2030-01-31T12:00:00Z"],
    )
    temporality: Temporality | None = Field(
        default=None,
        description="How matching clients push counters; null: `telemetry.delta_temporality`. A client "
        "whose subscriptions name both pushes cumulative values.",
    )
    description: _Description | None = Field(default=None, description="Text for people.")
    name: str | None = Field(
        default=None, description="If given, it must be the name in the path.", json_schema_extra=_READ_ONLY
    )
    changed_by: str | None = Field(default=None, description=_ByReceiver, json_schema_extra=_READ_ONLY)
    changed_at: str | None = Field(default=None, description=_ByReceiver, json_schema_extra=_READ_ONLY)
    state: str | None = Field(default=None, description=_ByReceiver, json_schema_extra=_READ_ONLY)


class SubscriptionBody(_Common):
    """A subscription in a request. A field that is null counts as left out."""

    metrics: _Metrics = Field(
        description="Prefixes of metric names; `*` alone: all metrics; an empty list: none.",
        examples=[["org.apache.kafka.producer."]],
    )
    interval_ms: _Interval | None = Field(
        default=None,
        description=f"How often matching clients push, {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS} milliseconds. "
        f"Left out: as before; {DEFAULT_INTERVAL_MS} for a new subscription.",
        examples=[60_000],
    )
    match: dict[str, _Pattern] | None = Field(
        default=None,
        description="Regular expressions (RE2) by selector, each for the whole value; all must match; "
        f"empty: all clients. {_SELECTORS}",
        examples=[{"client_software_name": "apache-kafka-java"}],
        json_schema_extra=_CONDITIONS,
    )
    labels: dict[str, _Label] | None = Field(
        default=None,
        max_length=MAX_LABELS,
        description=f"Texts by key for programs and people, at most {MAX_LABELS}.",
        json_schema_extra=_LABEL_KEYS,
    )


class ExplainBody(SubscriptionBody):
    """A subscription in a dry run."""

    name: str | None = Field(
        default=None,
        description="An existing name: it is taken for its replacement.",
        json_schema_extra=NAME_SCHEMA,
    )


class PatchBody(_Common):
    """A change of a subscription. Fields that are left out stay."""

    # Not null, because a subscription needs them.
    metrics: _Metrics = Field(default_factory=list, description="All prefixes anew.")
    add_metrics: _Metrics | None = Field(default=None, description="Prefixes to add.")
    remove_metrics: _Metrics | None = Field(default=None, description="Prefixes to remove.")
    interval_ms: _Interval | None = Field(
        default=None, description=f"The push interval in milliseconds; null: {DEFAULT_INTERVAL_MS}."
    )
    match: dict[str, _Pattern | None] | None = Field(
        default=None,
        description=f"Patterns to set, or null to remove, by selector. {_SELECTORS}",
        json_schema_extra=_CONDITIONS,
    )
    labels: dict[str, _Label | None] | None = Field(
        default=None,
        max_length=MAX_LABELS,
        description="Labels to set, or null to remove, by key.",
        json_schema_extra=_LABEL_KEYS,
    )


_Name = Annotated[str, Field(json_schema_extra={"pattern": _LINE})]
_Names = Annotated[list[_Name], Field(max_length=MAX_EXPECTED)]
_OwnerText = Annotated[str, Field(max_length=MAX_TEXT, json_schema_extra={"pattern": _LINE})]


class ExpectedBody(BaseModel):
    """What should be there."""

    model_config = ConfigDict(extra="forbid")

    principals: _Names | None = Field(default=None, description="Principals that should be connected.")
    topics: _Names | None = Field(default=None, description="Topics that its clients should use.")


class OwnerPatchBody(BaseModel):
    """A change of an owner (RFC 7396). Fields that are left out stay; null resets one."""

    model_config = ConfigDict(extra="forbid")

    match: dict[str, _Pattern | None] = Field(
        default_factory=dict,
        description=f"Patterns to set, or null to remove, by selector. {_SELECTORS}",
        json_schema_extra=_CONDITIONS,
    )
    contact: _OwnerText | None = Field(default=None, description="Where to ask, for people.")
    link: _OwnerText | None = Field(default=None, description="Where more is, for people.")
    expected: ExpectedBody | None = Field(default=None, description="What should be there.")
    team: str | None = Field(
        default=None, description="If given, it must be the name in the path.", json_schema_extra=_READ_ONLY
    )
    source: str | None = Field(default=None, description=_ByReceiver, json_schema_extra=_READ_ONLY)
    changed_by: str | None = Field(default=None, description=_ByReceiver, json_schema_extra=_READ_ONLY)
    changed_at: str | None = Field(default=None, description=_ByReceiver, json_schema_extra=_READ_ONLY)


class OwnerBody(OwnerPatchBody):
    """An owner in a request. A field that is null counts as left out."""

    match: dict[str, _Pattern] = Field(  # type: ignore[assignment]  # fewer values
        description="Regular expressions (RE2) by selector, each for the whole value; all must match; "
        f"empty: all clients. {_SELECTORS}",
        examples=[{"principal": "User:pay-.*"}],
        json_schema_extra=_CONDITIONS,
    )
