"""Kafka's error codes that the receiver reads or answers."""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class ErrorCode(IntEnum):
    """Kafka's error codes, as far as the receiver uses them (int16 on the wire).

    Source: the Kafka protocol guide, "Error Codes"; KIP-714, "Error codes"; KIP-511; KIP-1242.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    CORRUPT_MESSAGE = 2
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    NETWORK_EXCEPTION = 13
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    SASL_AUTHENTICATION_FAILED = 58
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    REBOOTSTRAP_REQUIRED = 129


_NAMES = {code.value: code.name for code in ErrorCode}


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or ``unknown(CODE)``."""
    return _NAMES.get(code) or f"unknown({code})"
