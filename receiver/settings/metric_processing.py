"""Settings of metric processing: normalization, series budgets and privacy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from receiver.patterns import Rewrite, compile_pattern
from receiver.settings.base import Settings
from receiver.settings.broker import SecretFileSettings

_MAX_SERIES = 1_000_000_000

#: Labels that can identify a person.
PseudonymizedLabel = Literal["principal", "client_source_address", "client_id"]


def _regular_expression(text: str) -> str:
    try:
        compile_pattern(text)
    except ValueError as error:
        raise ValueError(f"not a regular expression (RE2): {error}") from None
    return text


RegularExpression = Annotated[str, AfterValidator(_regular_expression)]


class NormalizationSettings(Settings):
    """Steps that give metrics of all clients the same names, units and meaning."""

    attributes: bool = True
    """Rename and convert attributes to one form: `node.id` and `node_id`, as text or as a number,
    become `node_id` and `node_role`; `member_id` becomes `group_member_id`."""
    units: bool = True
    """Add missing units from the catalogue of standard metrics."""
    descriptions: bool = False
    """Add missing descriptions from the catalogue. Off by default, because they double the size of
    a push."""
    known_bad_values: Literal["keep", "mark", "drop"] = "drop"
    """What happens to metrics that the client's version is known to report wrongly: `keep` them,
    `mark` them with the attribute `known_bad`, or `drop` them (default, because they mislead)."""


class ClientIdFoldingSettings(Settings):
    """A rule that replaces many client ids by one."""

    pattern: RegularExpression
    """Regular expression (RE2) that must match the whole client id, for example
    `(.*)-[0-9a-f]{8,10}-[a-z0-9]{5}` for the pods of a Deployment."""
    replacement: str = Field(max_length=512)
    r"""Value of the label `client_id` instead; `\1` is the first group."""

    @field_validator("replacement")
    @classmethod
    def _groups_are_there(cls, replacement: str, info: ValidationInfo) -> str:
        if "pattern" in info.data:
            Rewrite(info.data["pattern"], replacement)
        return replacement


class SeriesSettings(Settings):
    """Series budgets, with one overflow series, and client id folding."""

    max_per_client: int | None = Field(default=10_000, ge=1, le=_MAX_SERIES)
    """Series of one client instance; null: no budget. The default is more than the largest push of
    `telemetry.max_entries` holds."""
    max_per_principal: int | None = Field(default=200_000, ge=1, le=_MAX_SERIES)
    """Series of all instances of one principal; null: no budget. `User:ANONYMOUS` has none."""
    max_total: int | None = Field(default=1_000_000, ge=1, le=_MAX_SERIES)
    """Series of all instances together; null: no budget."""
    new_per_client_per_hour: int | None = Field(default=20_000, ge=1, le=_MAX_SERIES)
    """Series in an hour that the client instance had not pushed before; null: no limit. Further
    ones are replaced by the overflow series until there is room. An hour's worth may come at once.
    `limits.source_address.new_series_per_hour` and `limits.principal.new_series_per_hour` bound the
    instances of a peer together."""
    client_id_folding: tuple[ClientIdFoldingSettings, ...] = ()
    """Rules for client ids with generated parts. The first match applies."""


class PrivacyRuleSettings(Settings):
    """A rule that drops a metric, or drops or hashes an attribute."""

    attribute: RegularExpression | None = None
    """Regular expression (RE2) that must match the whole key of an attribute."""
    metric: RegularExpression | None = None
    """Regular expression (RE2) that must match the whole name of a metric; only with `drop`."""
    action: Literal["drop", "hash"]
    """`drop` removes it; `hash` replaces an attribute's value by a keyed hash."""

    @model_validator(mode="after")
    def _one_subject(self) -> PrivacyRuleSettings:
        if (self.attribute is None) == (self.metric is None):
            raise ValueError("a rule must have either `attribute` or `metric`")
        if self.metric is not None and self.action != "drop":
            raise ValueError("a metric can only be dropped: set action: drop, or give an attribute")
        return self


class PrivacySettings(Settings):
    """Removes attributes and metrics, and replaces names and addresses by hashes."""

    rules: tuple[PrivacyRuleSettings, ...] = ()
    """Attributes and metrics to drop or hash. The first match applies."""
    pseudonymize: tuple[PseudonymizedLabel, ...] = ()
    """Labels to replace by a keyed hash, in metrics and in what plugins get about the client:
    `principal`, `client_source_address`, `client_id`."""
    key: SecretFileSettings | None = None
    """The key of the hashes, at least 16 bytes: `{file: PATH}`. Required if anything is hashed. Use
    the same key on every sidecar to get the same hashes."""

    @property
    def hashes(self) -> bool:
        """Whether anything is hashed."""
        return bool(self.pseudonymize) or any(rule.action == "hash" for rule in self.rules)

    @model_validator(mode="after")
    def _key_where_needed(self) -> PrivacySettings:
        if self.hashes and self.key is None:
            raise ValueError("key is required, because a rule hashes or `pseudonymize` is set")
        return self
