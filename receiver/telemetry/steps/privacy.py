"""What must not be forwarded as it is: rules for attributes, labels and metrics, and keyed hashes.

Owns what a rule matches, how a hash is made, and what becomes of the receiver's own labels. It must not know
where attributes are in a push.

A hash is the first 16 hexadecimal digits of HMAC-SHA256 over the value's text, under the operator's key:
whoever has the key can tell what a value's hash is, and nobody else what a hash's value was. The same value
has the same hash wherever it stands.
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
from receiver.telemetry.connection import NOBODY
from receiver.telemetry.errors import PrivacyError
from receiver.telemetry.labels import LabelFacts

__all__ = ["Privacy"]

_Text = TypeVar("_Text", str, bytes, str | bytes)
_Answer = TypeVar("_Answer")

Action = Literal["drop", "hash"]

_HASH_DIGITS: Final = 16
# So many keys, names and values are remembered with what becomes of them, and none that is longer.
_REMEMBERED: Final = 4096
_REMEMBERED_CHARS: Final = 256

#: A dot is a newline too, as a name with one in it would escape ``.*`` otherwise.
_DOT_IS_ANYTHING: Final = "(?s)"

#: What Kafka's brokers and clients make of a client id and a random part, and OpenTelemetry's names for it.
_MADE_OF_THE_CLIENT_ID: Final = r"(?:group_)?member_id|thread[._-]id|(?:messaging\.)?client[.-]id"

#: Of whom a hash would hide nothing.
_NOT_HASHED: Final = ("", *NOBODY)


class Privacy:
    """The operator's rules; the first that matches counts.

    Args:
        settings: The rules, valid as their settings are.
        key: The key of the hashes, at least as long as it has to be; None where nothing is hashed.

    Attributes:
        on: Whether there is anything to do at all.
        attributes: Whether there is anything to do to attributes.
        metrics: Whether metrics may be dropped.
        hides_client_ids: Whether a client id must not show anywhere.

    Raises:
        PrivacyError: Something is to be hashed, and there is no key or it is too short.
    """

    __slots__ = (
        "_actions",
        "_metrics",
        "_pseudonymized",
        "_rank",
        "_rules",
        "attributes",
        "facts",
        "hash_of",
        "hides_client_ids",
        "metric",
        "metrics",
        "on",
    )

    def __init__(self, settings: PrivacySettings, key: bytes | None) -> None:
        if settings.hashes and (key is None or len(key) < MIN_KEY_BYTES):
            raise PrivacyError(
                field="privacy.key_file",
                value=f"{len(key or b'')} bytes",
                problem="are too few for the key of the hashes",
                fix=f"write {MIN_KEY_BYTES} random bytes or more",
            )
        self._pseudonymized = frozenset(settings.pseudonymize)
        self.hides_client_ids: Final = "client_id" in self._pseudonymized
        rules: list[tuple[Any, Action]] = [
            (compile_pattern(_DOT_IS_ANYTHING + rule.attribute), rule.action)
            for rule in settings.rules
            if rule.attribute is not None
        ]
        if self.hides_client_ids:
            rules.append((compile_pattern(_MADE_OF_THE_CLIENT_ID), "hash"))
        self._rules = tuple(pattern for pattern, _ in rules)
        # The last is for what no rule is for.
        self._actions = (*(action for _, action in rules), None)
        self._rank = _remembering(self._first_rule)
        self._metrics = tuple(
            compile_pattern(_DOT_IS_ANYTHING + rule.metric)
            for rule in settings.rules
            if rule.metric is not None
        )
        self.attributes: Final = bool(rules)
        self.metrics: Final = bool(self._metrics)
        self.on: Final = bool(settings.rules or settings.pseudonymize)
        #: Say whether a metric of that name is dropped.
        self.metric = _remembering(self._drops)
        self.hash_of = _remembering(_hasher(key or b""))
        #: Say what the labels are that may be forwarded; None in place of one that may not.
        self.facts = lru_cache(_REMEMBERED // 4)(self._facts) if self.on else _as_they_are

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
        """Say what a scope's name may be: librdkafka's begins with the client id, ``ID#producer-1``."""
        client_id, mark, rest = name.rpartition("#")
        return self.hash_of(client_id) + mark + rest if self.hides_client_ids and mark else name

    def attribute(self, old_key: str, key: str) -> Action | None:
        """Say what becomes of an attribute that had the first key and has the second; None: nothing."""
        rank = self._rank(key)
        return self._actions[rank if old_key == key else min(rank, self._rank(old_key))]

    def _first_rule(self, key: str) -> int:
        text = key.encode("utf-8", "replace")
        matches = (index for index, rule in enumerate(self._rules) if rule.fullmatch(text) is not None)
        return next(matches, len(self._rules))

    def _drops(self, name: str) -> bool:
        text = name.encode("utf-8", "replace")
        return any(pattern.fullmatch(text) is not None for pattern in self._metrics)

    def _facts(self, facts: LabelFacts) -> LabelFacts:
        changes: dict[str, Any] = {}
        for label, value in facts._asdict().items():
            if value is None:
                continue
            action = self.attribute(label, label)
            if action == "drop":
                changes[label] = None
            elif action == "hash":
                changes[label] = self.hash_of(str(value))
            elif label in self._pseudonymized and value not in _NOT_HASHED:
                changes[label] = self._principal(value) if label == "principal" else self.hash_of(value)
        return facts._replace(**changes)

    def _principal(self, principal: str) -> str:
        """Hash a principal's name and keep its type, which says nothing of who it is."""
        kind, mark, name = principal.partition(":")
        return f"{kind}:{self.hash_of(name)}" if mark else self.hash_of(principal)


def _remembering(answer: Callable[[_Text], _Answer]) -> Callable[[_Text], _Answer]:
    """Remember what a function says of short texts; a push may have long ones, and many."""
    remembered = lru_cache(_REMEMBERED)(answer)

    def of(text: _Text) -> _Answer:
        return remembered(text) if len(text) <= _REMEMBERED_CHARS else answer(text)

    return of


def _as_they_are(facts: LabelFacts) -> LabelFacts:
    return facts


def _hasher(key: bytes) -> Callable[[str | bytes], str]:
    def hash_of(value: str | bytes) -> str:
        data = value.encode("utf-8", "replace") if isinstance(value, str) else value
        return hmac.digest(key, data, "sha256").hex()[:_HASH_DIGITS]

    return hash_of
