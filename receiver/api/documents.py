"""The bodies of requests, for the OpenAPI document.

The telemetry core validates them (:mod:`receiver.telemetry.subscription_document`). A test compares
the fields of both.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from receiver.telemetry.selectors import NEGATION, SELECTORS
from receiver.telemetry.subscription import (
    DEFAULT_INTERVAL_MS,
    MAX_DESCRIPTION_LENGTH,
    MAX_INTERVAL_MS,
    MAX_LABELS,
    MAX_METRICS,
    MIN_INTERVAL_MS,
    Temporality,
)

__all__ = ["PatchBody", "SubscriptionBody"]

_SELECTORS = (
    f"Selectors: {', '.join(SELECTORS)}. `{NEGATION}` behind a selector's name: the pattern must not match."
)

_Metrics = Annotated[list[str], Field(max_length=MAX_METRICS)]
_Interval = Annotated[int, Field(ge=MIN_INTERVAL_MS, le=MAX_INTERVAL_MS)]
_Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_LENGTH)]
_READ_ONLY = "Set by the receiver and ignored in a request, so that an answer can be sent back."


class _Common(BaseModel):
    """The fields that both bodies have."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool | None = Field(default=None, description="Whether it applies; null: true.")
    expires_at: str | None = Field(
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
    name: str | None = Field(default=None, description="If given, it must be the name in the path.")
    changed_by: str | None = Field(default=None, description=_READ_ONLY)
    changed_at: str | None = Field(default=None, description=_READ_ONLY)
    state: str | None = Field(default=None, description=_READ_ONLY)


class SubscriptionBody(_Common):
    """A subscription in a request. A field that is null counts as left out."""

    metrics: _Metrics = Field(
        description="Prefixes of metric names; `*` alone: every metric; an empty list: none.",
        examples=[["org.apache.kafka.producer."]],
    )
    interval_ms: _Interval | None = Field(
        default=None,
        description=f"How often matching clients push, {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS} milliseconds. "
        f"Left out: as before; {DEFAULT_INTERVAL_MS} for a new subscription.",
        examples=[60_000],
    )
    match: dict[str, str] | None = Field(
        default=None,
        description="Regular expressions (RE2) by selector, each for the whole value; all must match; "
        f"empty: every client. {_SELECTORS}",
        examples=[{"client_software_name": "apache-kafka-java"}],
    )
    labels: dict[str, str] | None = Field(
        default=None, description=f"Texts by key for programs and people, at most {MAX_LABELS}."
    )


class PatchBody(_Common):
    """A change of a subscription. Fields that are left out stay."""

    metrics: _Metrics | None = Field(default=None, description="All prefixes anew.")
    add_metrics: _Metrics | None = Field(default=None, description="Prefixes to add.")
    remove_metrics: _Metrics | None = Field(default=None, description="Prefixes to remove.")
    interval_ms: _Interval | None = Field(
        default=None, description=f"The push interval in milliseconds; null: {DEFAULT_INTERVAL_MS}."
    )
    match: dict[str, str | None] | None = Field(
        default=None, description=f"Patterns to set, or null to remove, by selector. {_SELECTORS}"
    )
    labels: dict[str, str | None] | None = Field(
        default=None, description="Labels to set, or null to remove, by key."
    )
