"""What can be wrong with what a client pushes or an operator writes, as types.

Owns the telemetry core's exceptions. A leaf says who must act::

    ValueError
    +-- InvalidValueError        the operator: a value of theirs is wrong
    |   +-- SubscriptionError    ... in a subscription
    |   +-- QuirkError           ... in a rule for certain clients
    |   +-- PrivacyError         ... in what is hashed
    +-- PushError                the client, or whoever wrote it: a push cannot be taken
        +-- UnknownCodecError    its compression type is none of KIP-714's
        +-- TooLargeError        it is larger than allowed, or wants more memory than allowed
        +-- NotInflatableError   its bytes are not what its compression type says
        +-- InvalidMetricsError  inflated, it is no OTLP with metrics
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

#: So many characters of a wrong value are repeated in its error.
_SHOWN_CHARACTERS = 60


class InvalidValueError(ValueError):
    """A value that an operator wrote is wrong; the text is one line that names field, value and fix.

    Attributes:
        field: Path of the field as in JSON, such as ``metrics[0]`` or ``match.client_id``.
        value: The wrong value as text, shortened.
        problem: What is wrong with it.
        fix: What to write instead.
    """

    def __init__(self, *, field: str, value: object, problem: str, fix: str) -> None:
        shown = repr(value)
        if len(shown) > _SHOWN_CHARACTERS:
            shown = f"{shown[:_SHOWN_CHARACTERS]}..."
        super().__init__(f"{field}: {shown} {problem}; {fix}")
        self.field = field
        self.value = shown
        self.problem = problem
        self.fix = fix


class SubscriptionError(InvalidValueError):
    """A subscription cannot be as the operator wrote it (KIP-714, "Client metrics configuration")."""


class QuirkError(InvalidValueError):
    """A rule for certain clients cannot be as the operator wrote it."""


class PrivacyError(InvalidValueError):
    """Nothing can be hashed as the operator wrote it."""


class PushError(ValueError):
    """A push cannot be taken; the text is a short reason for the operator and holds none of its bytes.

    Attributes:
        error_code: What the client is answered.
        inflated_bytes: Bytes that were inflated in vain, 0 where it did not come to that.
    """

    error_code: ClassVar[ErrorCode]

    def __init__(self, problem: str, *, inflated_bytes: int = 0) -> None:
        super().__init__(problem)
        self.inflated_bytes = inflated_bytes


class UnknownCodecError(PushError):
    """The compression type is none of KIP-714's."""

    error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class TooLargeError(PushError):
    """The push is over a limit; a client survives the answer."""

    error_code = ErrorCode.TELEMETRY_TOO_LARGE


class NotInflatableError(PushError):
    """The bytes are not what the compression type says."""

    error_code = ErrorCode.INVALID_RECORD


class InvalidMetricsError(PushError):
    """The inflated bytes are no OTLP MetricsData, or hold no metric."""

    error_code = ErrorCode.INVALID_RECORD
