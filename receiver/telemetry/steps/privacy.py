"""Privacy rules: drop attributes, labels and metrics, or hash values.

A hash is the first 16 hexadecimal digits of HMAC-SHA256 over the value's text with the operator's
key. The owner of the key can compute the hash of a known value. Without the key, a hash reveals
nothing about its value. Equal values have equal hashes everywhere.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar

from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from receiver.patterns import compile_pattern
from receiver.settings.key_file import MIN_KEY_BYTES
from receiver.settings.metric_processing import PrivacySettings
from receiver.telemetry.errors import InvalidValueError
from receiver.telemetry.identity import SHARED_PRINCIPALS
from receiver.telemetry.labels import NO_LABELS, Labels

_Text = TypeVar("_Text", str, bytes, str | bytes)
_Answer = TypeVar("_Answer")

Action = Literal["drop", "hash"]

_HASH_DIGITS: Final = 16
# Entries of each cache, and the longest text in it.
_CACHE_SIZE: Final = 4096
_CACHED_CHARS: Final = 256

# A dot matches a newline too; otherwise a name with a newline would not match ``.*``.
_DOT_MATCHES_ALL: Final = "(?s)"

# Attributes that contain the client id: member ids, thread ids, and OpenTelemetry's names for it.
_CONTAINS_CLIENT_ID: Final = r"(?:group_)?member_id|thread[._-]id|(?:messaging\.)?client[.-]id"

# Values that many clients share: a hash would hide nothing.
_NOT_HASHED: Final = ("", *SHARED_PRINCIPALS)


class Privacy:
    """The operator's rules; the first that matches applies.

    Attributes:
        attributes: Whether a rule may apply to attributes.
        metrics: Whether a rule may drop metrics.

    Raises:
        InvalidValueError: A setting asks for hashes, and the key is missing or too short.
    """

    def __init__(self, settings: PrivacySettings, key: bytes | None) -> None:
        if settings.hashes and (key is None or len(key) < MIN_KEY_BYTES):
            raise InvalidValueError(
                "privacy.key",
                f"{len(key or b'')} bytes",
                "are too few for the key of the hashes",
                f"write {MIN_KEY_BYTES} random bytes or more",
            )
        self._pseudonymized = frozenset(settings.pseudonymize)
        self._hides_client_ids = "client_id" in self._pseudonymized
        rules: list[tuple[Any, Action]] = [
            (compile_pattern(_DOT_MATCHES_ALL + rule.attribute), rule.action)
            for rule in settings.rules
            if rule.attribute is not None
        ]
        if self._hides_client_ids:
            rules.append((compile_pattern(_CONTAINS_CLIENT_ID), "hash"))
        self._rules = tuple(pattern for pattern, _ in rules)
        # The last entry is for keys without a rule.
        self._actions = (*(action for _, action in rules), None)
        self._rank = _cached(self._first_rule)
        self._metrics = tuple(
            compile_pattern(_DOT_MATCHES_ALL + rule.metric)
            for rule in settings.rules
            if rule.metric is not None
        )
        self.attributes: Final = bool(rules)
        self.metrics: Final = bool(self._metrics)
        self.on: Final = bool(settings.rules or settings.pseudonymize)
        #: Return whether a metric of that name is dropped.
        self.metric = _cached(self._drops)
        self.hash_of = _cached(_hasher(key or b""))
        #: Return the labels that may be forwarded; None in place of a dropped one.
        self.labels = lru_cache(_CACHE_SIZE // 4)(self._apply_to_labels)

    def hashed(self, value: AnyValue) -> str:
        """Hash an attribute's value of any type: 1 and "1" are the same."""
        kind = value.WhichOneof("value")
        if kind == "string_value":
            return self.hash_of(value.string_value)
        if kind in ("int_value", "double_value"):
            return self.hash_of(str(getattr(value, kind)))
        if kind == "bool_value":
            return self.hash_of("true" if value.bool_value else "false")
        return self.hash_of(value.SerializeToString(deterministic=True))

    def scope_name(self, name: str) -> str:
        """Hash the client id in librdkafka's scope names, which are ``ID#producer-1``."""
        client_id, mark, rest = name.rpartition("#")
        return self.hash_of(client_id) + mark + rest if self._hides_client_ids and mark else name

    def attribute(self, old_key: str, key: str) -> Action | None:
        """Return the action for an attribute that was renamed from ``old_key``.

        None to keep it.
        """
        rank = self._rank(key)
        return self._actions[rank if old_key == key else min(rank, self._rank(old_key))]

    def _first_rule(self, key: str) -> int:
        text = key.encode("utf-8", "replace")
        matches = (index for index, rule in enumerate(self._rules) if rule.fullmatch(text) is not None)
        return next(matches, len(self._rules))

    def _drops(self, name: str) -> bool:
        text = name.encode("utf-8", "replace")
        return any(pattern.fullmatch(text) is not None for pattern in self._metrics)

    def _apply_to_labels(self, labels: Labels) -> Labels:
        changes: dict[str, Any] = {}
        for label, value in labels._asdict().items():
            if value is None:
                continue
            action = self.attribute(label, label)
            if action == "drop":
                changes[label] = None
            elif action == "hash":
                changes[label] = self.hash_of(str(value))
            elif label in self._pseudonymized and value not in _NOT_HASHED:
                changes[label] = self._principal(value) if label == "principal" else self.hash_of(value)
        return labels._replace(**changes)

    def principal_label(self, principal: str) -> str | None:
        """Return a principal as the label may be forwarded; None: the label is dropped."""
        return self.labels(NO_LABELS._replace(principal=principal)).principal

    def topic_value(self, topic: str) -> str | None:
        """Return a topic as its attribute may be forwarded; None: it is dropped."""
        action = self.attribute("topic", "topic")
        return None if action == "drop" else self.hash_of(topic) if action == "hash" else topic

    def _principal(self, principal: str) -> str:
        """Hash the name of a principal and keep its type."""
        kind, mark, name = principal.partition(":")
        return f"{kind}:{self.hash_of(name)}" if mark else self.hash_of(principal)


def _cached(answer: Callable[[_Text], _Answer]) -> Callable[[_Text], _Answer]:
    """Cache a function for short texts only, because a push may have many long ones."""
    cached = lru_cache(_CACHE_SIZE)(answer)

    def call(text: _Text) -> _Answer:
        return cached(text) if len(text) <= _CACHED_CHARS else answer(text)

    return call


def _hasher(key: bytes) -> Callable[[str | bytes], str]:
    def hash_of(value: str | bytes) -> str:
        data = value.encode("utf-8", "replace") if isinstance(value, str) else value
        return hmac.digest(key, data, "sha256").hex()[:_HASH_DIGITS]

    return hash_of
