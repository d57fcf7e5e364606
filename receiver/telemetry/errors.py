"""The telemetry core's exceptions.

The subclass says who must act::

    ValueError
    +-- InvalidValueError        the operator: a configured value is invalid
    |   +-- SubscriptionError    ... in a subscription
    +-- PushError                the client, or its author: a push is refused
        +-- NoPluginError        the operator: no plugin takes metrics
        +-- InvalidInstanceError its client instance id is reserved
        +-- UnknownCodecError    its compression type is none of KIP-714's
        +-- TooLargeError        it is over a limit of size, memory or work
        +-- NotInflatableError   its bytes do not match its compression type
        +-- InvalidMetricsError  its inflated bytes are not OTLP metrics
"""

from __future__ import annotations

import json
from typing import ClassVar

from receiver.wire.error_codes import ErrorCode

# An error quotes at most this many characters of the value.
_SHOWN_CHARACTERS = 60


class InvalidValueError(ValueError):
    """A configured value is invalid.

    The text is one line with the field, the value and the fix.

    ``field`` is a JSON path, such as ``metrics[0]``. ``value`` is a text in quotes, or another
    value as JSON, shortened.
    """

    def __init__(self, field: str, value: object, problem: str, fix: str) -> None:
        try:
            shown = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
        except (ValueError, RecursionError, TypeError):  # thousands of digits, or too deep a list
            shown = "the value"
        if len(shown) > _SHOWN_CHARACTERS:
            shown = f"{shown[:_SHOWN_CHARACTERS]}..."
        super().__init__(f"{field}: {shown} {problem}; {fix}")
        self.field = field
        self.value = shown
        self.problem = problem
        self.fix = fix


class SubscriptionError(InvalidValueError):
    """A subscription is invalid (KIP-714, "Client metrics configuration").

    ``further`` has the errors of its other fields.
    """

    def __init__(self, field: str, value: object, problem: str, fix: str) -> None:
        super().__init__(field, value, problem, fix)
        self.further: list[SubscriptionError] = []

    def renamed(self, field: str) -> SubscriptionError:
        """Give it another field, and return it."""
        self.field = field
        self.args = (f"{field}: {self.value} {self.problem}; {self.fix}",)
        return self

    @property
    def all(self) -> tuple[SubscriptionError, ...]:
        """This error and all further ones."""
        return (self, *self.further)


class PushError(ValueError):
    """A push is refused.

    The text is a short reason for the operator, without bytes of the push.

    ``inflated_bytes`` were inflated before the refusal.
    """

    error_code: ClassVar[ErrorCode]  # the answer to the client

    def __init__(self, problem: str, *, inflated_bytes: int = 0) -> None:
        super().__init__(problem)
        self.inflated_bytes = inflated_bytes


class NoPluginError(PushError):
    """No plugin takes metrics that nobody asked for.

    KIP-714's draft names FunctionalityNotEnabled, which Kafka has not; a broker without telemetry
    answers as to any request that its ApiVersions do not offer.
    """

    error_code = ErrorCode.UNSUPPORTED_VERSION


class InvalidInstanceError(PushError):
    """The client instance id is zero or reserved."""

    error_code = ErrorCode.INVALID_REQUEST


class UnknownCodecError(PushError):
    """The compression type is none of KIP-714's."""

    error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class TooLargeError(PushError):
    """The push is over a limit."""

    error_code = ErrorCode.TELEMETRY_TOO_LARGE


class NotInflatableError(PushError):
    """The bytes do not match the compression type."""

    error_code = ErrorCode.INVALID_RECORD


class InvalidMetricsError(PushError):
    """The inflated bytes are not an OTLP MetricsData, or have no metric."""

    error_code = ErrorCode.INVALID_RECORD
