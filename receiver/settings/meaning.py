"""What is done to the metrics of a push before plugins get them, as types.

Owns the keys ``telemetry.normalization``, ``telemetry.series`` and ``telemetry.privacy``. What each step does
is the telemetry core's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from receiver.patterns import Rewrite, compile_pattern
from receiver.settings.base import Settings

__all__ = [
    "ClientIdFoldingSettings",
    "NormalizationSettings",
    "PrivacyRuleSettings",
    "PrivacySettings",
    "RegularExpression",
    "SeriesSettings",
]

_MOST_SERIES = 1_000_000_000

#: Labels that tell who somebody is.
PseudonymizedLabel = Literal["principal", "client_source_address", "client_id"]


def _regular_expression(text: str) -> str:
    try:
        compile_pattern(text)
    except ValueError as error:
        raise ValueError(f"not a regular expression (RE2): {error}") from None
    return text


RegularExpression = Annotated[str, AfterValidator(_regular_expression)]


class NormalizationSettings(Settings):
    """Steps that make metrics mean the same from every client."""

    attributes: bool = Field(
        default=True,
        description="Give attributes one name and form: `node.id` and `node_id`, as text or as a number, "
        "become `node_id` and `node_role`; `member_id` becomes `group_member_id`.",
    )
    units: bool = Field(
        default=True, description="Add the unit that the catalogue of standard metrics has, where none is."
    )
    descriptions: bool = Field(
        default=False,
        description="Add the catalogue's description, where none is; it makes pushes twice as large.",
    )
    known_bad_values: Literal["keep", "mark", "drop"] = Field(
        default="drop",
        description="What becomes of metrics that a client's version is known to get wrong: `mark` adds the "
        "attribute `known_bad`.",
    )


class ClientIdFoldingSettings(Settings):
    """A rule that makes one client id of many."""

    pattern: RegularExpression = Field(
        description="Regular expression (RE2) for the whole client id, for example "
        "`(.*)-[0-9a-f]{8,10}-[a-z0-9]{5}`, which are a Deployment's pods."
    )
    replacement: str = Field(
        max_length=512, description="What the label `client_id` is instead; `\\1` is the first group."
    )

    @field_validator("replacement")
    @classmethod
    def _groups_are_there(cls, replacement: str, info: ValidationInfo) -> str:
        if "pattern" in info.data:
            Rewrite(info.data["pattern"], replacement)
        return replacement


class SeriesSettings(Settings):
    """Budgets of series, and client ids folded together; what is over becomes one overflow series."""

    max_per_client: int | None = Field(
        default=10_000, ge=1, le=_MOST_SERIES, description="Series of one client instance; null: no budget."
    )
    max_per_principal: int | None = Field(
        default=200_000,
        ge=1,
        le=_MOST_SERIES,
        description="Series of all instances of one principal; nobody in particular has no budget.",
    )
    max_total: int | None = Field(
        default=1_000_000, ge=1, le=_MOST_SERIES, description="Series of all instances together."
    )
    client_id_folding: tuple[ClientIdFoldingSettings, ...] = Field(
        default=(), description="Rules for client ids with generated parts; the first that matches counts."
    )


class PrivacyRuleSettings(Settings):
    """A rule for what must not be forwarded as it is; it names an attribute or a metric."""

    attribute: RegularExpression | None = Field(
        default=None, description="Regular expression (RE2) for the whole key of an attribute."
    )
    metric: RegularExpression | None = Field(
        default=None, description="Regular expression (RE2) for the whole name of a metric; only `drop`."
    )
    action: Literal["drop", "hash"] = Field(
        description="`drop` leaves it out; `hash` puts a keyed hash in the place of an attribute's value."
    )

    @model_validator(mode="after")
    def _one_subject(self) -> PrivacyRuleSettings:
        if (self.attribute is None) == (self.metric is None):
            raise ValueError("a rule names either `attribute` or `metric`")
        if self.metric is not None and self.action != "drop":
            raise ValueError("a metric can only be dropped: set action: drop, or name an attribute")
        return self


class PrivacySettings(Settings):
    """What is left out, and what is put in the place of names and addresses."""

    rules: tuple[PrivacyRuleSettings, ...] = Field(
        default=(), description="Attributes and metrics to drop or hash; the first that matches counts."
    )
    pseudonymize: tuple[PseudonymizedLabel, ...] = Field(
        default=(),
        description="Labels whose values become a keyed hash, in the metrics and in what plugins are told: "
        "`principal`, `client_source_address`, `client_id`.",
    )
    key_file: Path | None = Field(
        default=None,
        description="File with the key of the hashes, 16 bytes at least; the same on every sidecar gives the "
        "same hashes. Needed where anything is hashed.",
    )

    @property
    def hashes(self) -> bool:
        """Whether anything is hashed."""
        return bool(self.pseudonymize) or any(rule.action == "hash" for rule in self.rules)

    @model_validator(mode="after")
    def _key_where_needed(self) -> PrivacySettings:
        if self.hashes and self.key_file is None:
            raise ValueError("key_file is needed where something is hashed or pseudonymized")
        return self
