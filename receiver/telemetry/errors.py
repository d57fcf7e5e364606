"""The telemetry core's exceptions.

The subclass says who must act::

    ValueError
    +-- InvalidValueError        the operator: a configured value is invalid
    |   +-- SubscriptionError    ... in a subscription
    |   +-- QuirkError           ... in a rule for certain clients
    |   +-- PrivacyError         ... in a privacy setting
    +-- PushError                the client, or its author: a push is refused
        +-- UnknownCodecError    its compression type is none of KIP-714's
        +-- TooLargeError        it is over a limit of size, memory or work
        +-- NotInflatableError   its bytes do not match its compression type
        +-- InvalidMetricsError  its inflated bytes are not OTLP metrics
"""

from __future__ import annotations

from typing import ClassVar

from receiver.wire.error_codes import ErrorCode

__all__ = [
    "InvalidMetricsError",
    "InvalidValueError",
    "NotInflatableError",
    "PrivacyError",
    "PushError",
    "QuirkError",
    "SubscriptionError",
    "TooLargeError",
    "UnknownCodecError",
]

# An error quotes at most this many characters of the value.
_SHOWN_CHARACTERS = 60


class InvalidValueError(ValueError):
    """A configured value is invalid; the text is one line with the field, the value and the fix.

    Attributes:
        field: JSON path of the field, such as ``metrics[0]`` or ``match.client_id``.
        value: The value's ``repr``, shortened.
        problem: What is wrong with it.
        fix: What to write instead.
    """

    def __init__(self, field: str, value: object, problem: str, fix: str) -> None:
        shown = repr(value)
        if len(shown) > _SHOWN_CHARACTERS:
            shown = f"{shown[:_SHOWN_CHARACTERS]}..."
        super().__init__(f"{field}: {shown} {problem}; {fix}")
        self.field = field
        self.value = shown
        self.problem = problem
        self.fix = fix


class SubscriptionError(InvalidValueError):
    """A subscription is invalid (KIP-714, "Client metrics configuration")."""


class QuirkError(InvalidValueError):
    """A rule for certain clients is invalid."""


class PrivacyError(InvalidValueError):
    """The key for hashes is missing or too short."""


class PushError(ValueError):
    """A push is refused; the text is a short reason for the operator, without bytes of the push.

    Attributes:
        error_code: The answer to the client.
        inflated_bytes: Bytes that were inflated before the refusal.
    """

    error_code: ClassVar[ErrorCode]

    def __init__(self, problem: str, *, inflated_bytes: int = 0) -> None:
        super().__init__(problem)
        self.inflated_bytes = inflated_bytes


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
