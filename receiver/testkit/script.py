"""The script of a test run: what the kit answers, step by step, to each client.

A step may change the subscription, and may treat one request in a special way. It ends when the
client has pushed or asked so many times, or after a time limit, and the next one begins. The last
step lasts until the client ends.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from receiver.settings.errors import settings_errors
from receiver.telemetry.compression import CODECS
from receiver.wire.error_codes import ErrorCode
from spark_streaming.files import MAX_CONFIGURATION_BYTES, FileError, read_bounded
from spark_streaming.plain_yaml import PlainYamlError, parse

#: The names of the scripts that come with the kit.
BUILT_IN: Final = ("default", "invalid-record", "invalid-request", "lost-push")

_MAX_STEPS: Final = 200

Codec = Literal["gzip", "snappy", "lz4", "zstd"]


class ScriptError(Exception):
    """The script can't be used; the text names file, field, value and fix."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SubscriptionChange(_Part):
    """What a step changes of the subscription; what is left out stays as it is.

    The fields are those of the answer to GetTelemetrySubscriptions (KIP-714).
    """

    metrics: tuple[str, ...] | None = Field(default=None, max_length=64)
    interval_ms: int | None = Field(default=None, ge=100, le=3_600_000)
    codecs: tuple[Codec, ...] | None = Field(default=None, max_length=4)
    max_bytes: int | None = Field(default=None, ge=1, le=16 << 20)
    temporality: Literal["delta", "cumulative"] | None = None

    def applied(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a subscription with the change."""
        changed = dict(fields)
        if self.metrics is not None:
            changed["metrics"] = self.metrics
        if self.interval_ms is not None:
            changed["interval_ms"] = self.interval_ms
        if self.codecs is not None:
            changed["codecs"] = tuple(CODECS[codec] for codec in self.codecs)
        if self.max_bytes is not None:
            changed["max_bytes"] = self.max_bytes
        if self.temporality is not None:
            changed["delta"] = self.temporality == "delta"
        return changed


class Step(_Part):
    """One step."""

    name: str = Field(min_length=1, max_length=100)
    """The step's name, which the report repeats."""
    subscription: SubscriptionChange | None = None
    """What changes of the subscription. The client then gets UNKNOWN_SUBSCRIPTION_ID for its next
    push."""
    request: Literal["push", "get"] = "push"
    """The kind of request that is treated in a special way, by one of the next four."""
    error: str | None = None
    """Answer this error."""
    throttle_ms: int = Field(default=0, ge=0, le=60_000)
    """Answer this throttle time."""
    disconnect: Literal["answered", "unanswered"] | None = None
    """Close the connection, after the answer or in its place."""
    delay_ms: int = Field(default=0, ge=0, le=60_000)
    """Answer so much later."""
    pushes: int = Field(default=1, ge=0, le=10_000)
    """The step ends after so many further pushes that follow its subscription."""
    gets: int = Field(default=0, ge=0, le=10_000)
    """The step ends when the client asks for its subscription so many times, if this is not 0. The
    last of these requests is answered by the next step."""
    within_s: float = Field(default=20.0, gt=0, le=86_400)
    """The step ends after so many seconds in any case."""

    @field_validator("error")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and value not in ErrorCode.__members__:
            names = ", ".join(sorted(ErrorCode.__members__))
            raise ValueError(f"is no error of Kafka that the kit knows; write one of {names}")
        return value

    @property
    def special(self) -> bool:
        """Whether one request is treated in a special way."""
        return bool(self.error or self.throttle_ms or self.disconnect or self.delay_ms)

    @property
    def renews(self) -> bool:
        """Whether the client must ask for its subscription when the step begins."""
        return self.subscription is not None or (self.request == "get" and self.special)


class Script(_Part):
    """The steps, and the subscription before the first of them."""

    subscription: SubscriptionChange = SubscriptionChange()
    steps: tuple[Step, ...] = Field(min_length=1, max_length=_MAX_STEPS)

    def initial(self) -> dict[str, Any]:
        """Return the fields of the first subscription, without its id."""
        everything: dict[str, Any] = {
            "metrics": ("",),
            "interval_ms": 1000,
            "codecs": (CODECS["zstd"], CODECS["lz4"], CODECS["snappy"], CODECS["gzip"]),
            "max_bytes": 1 << 20,
            "delta": True,
        }
        return self.subscription.applied(everything)


def load_script(name: str) -> Script:
    """Read a script: a built-in one by its name, or a YAML file.

    Raises:
        ScriptError: It can't be read, or has mistakes.
    """
    if name in BUILT_IN:
        text = resources.files(__package__).joinpath(f"scripts/{name}.yaml").read_text("utf-8")
        return parse_script(text, name)
    try:
        return parse_script(read_bounded(Path(name), MAX_CONFIGURATION_BYTES), name)
    except FileError as error:
        raise ScriptError(f"{name}: {error}; name a file, or one of {', '.join(BUILT_IN)}") from None


def parse_script(text: str | bytes, name: str) -> Script:
    """Read a script from YAML; ``name`` is for errors.

    Raises:
        ScriptError: It has mistakes.
    """
    try:
        document = parse(text)
    except PlainYamlError as error:
        raise ScriptError(f"{name}: {error}") from None
    try:
        return Script.model_validate(document)
    except ValidationError as error:
        lines = [f"{name}: {mistake}" for mistake in settings_errors(error, Script)]
        raise ScriptError("\n".join(lines)) from None
