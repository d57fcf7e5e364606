"""Subscriptions as plain documents: of YAML files, of JSON records.

Owns the keys, which are the fields of :class:`Subscription`, and finds every mistake of a document
at once. The telemetry core decides what a valid subscription is.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from receiver.settings.errors import key_text
from receiver.settings.schema import Loc
from receiver.telemetry.subscription import Subscription, SubscriptionError

__all__ = ["KEYS", "Mistake", "from_document", "to_document"]

_FIELDS: Final = tuple(field for field in dataclasses.fields(Subscription) if field.init)

#: The keys of a document, in order.
KEYS: Final = tuple(field.name for field in _FIELDS)

_REQUIRED: Final = tuple(
    field.name
    for field in _FIELDS
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
)


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake of a document: the path of the value, and what is wrong and how to correct it."""

    loc: Loc
    text: str

    def __str__(self) -> str:
        return f"{key_text(self.loc)}: {self.text}" if self.loc else self.text


def to_document(subscription: Subscription) -> dict[str, Any]:
    """Return the subscription as texts, numbers, lists and mappings; the inverse of reading it."""
    return {key: _plain(getattr(subscription, key)) for key in KEYS}


def from_document(document: object, *, name: str | None = None) -> Subscription | list[Mistake]:
    """Read a subscription, or return all mistakes.

    Args:
        document: A mapping of :data:`KEYS`.
        name: The name of a subscription without ``name``; None: the key is required.
    """
    if not isinstance(document, Mapping):
        return [Mistake((), f"expected a mapping with the keys {', '.join(KEYS)}")]
    values = {"name": name, **document} if name is not None else dict(document)
    mistakes = [Mistake((str(key),), _unknown(str(key))) for key in values if key not in KEYS]
    mistakes += [Mistake((), f"{key}: required") for key in _REQUIRED if key not in values]
    known = {key: value for key, value in values.items() if key in KEYS}
    for key, value in known.items():
        mistakes += _mistakes(key, value)
    if mistakes:
        return mistakes
    try:
        return Subscription(**known)
    except SubscriptionError as error:  # of several fields together
        return [_mistake(error, ())]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in sorted(value.items())}
    return [_plain(item) for item in value] if isinstance(value, list | tuple | frozenset) else value


def _unknown(key: str) -> str:
    close = difflib.get_close_matches(key, KEYS, n=1)
    return f"unknown key; did you mean {close[0]}?" if close else f"unknown key; known are {', '.join(KEYS)}"


def _mistakes(key: str, value: Any) -> list[Mistake]:
    """Return the mistakes of one field. A constructor reports only the first of all fields."""
    whole = _check(key, value)
    if whole is None:
        return []
    # The entries of a list or mapping one by one, because each may be wrong.
    each: list[Mistake] = []
    if isinstance(value, list):
        for index, item in enumerate(value):
            error = _check(key, [item])
            each += [_mistake(error, (key, index))] if error is not None else []
    elif isinstance(value, Mapping):
        for part, item in value.items():
            error = _check(key, {part: item})
            each += [_mistake(error, (key, str(part)))] if error is not None else []
    return each or [_mistake(whole, (key,))]


def _check(key: str, value: Any) -> SubscriptionError | None:
    try:
        Subscription(**{"name": "a", "metrics": (), key: value})
    except SubscriptionError as error:
        return error
    return None


def _mistake(error: SubscriptionError, loc: Loc) -> Mistake:
    return Mistake(loc, f"{error.value} {error.problem}; {error.fix}")
