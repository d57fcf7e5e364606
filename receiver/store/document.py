"""Subscriptions of files and records, with the path of each mistake."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from receiver.numbers import whole_number
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.subscription import Subscription
from receiver.telemetry.subscription_document import FIELDS, read_document, time_from_text
from spark_streaming.plain_yaml import Loc, key_text

#: The keys of a stored document.
KEYS: Final = ("name", *FIELDS, "changed_by", "changed_at")

#: A field's path, such as ``metrics[0]`` or ``match.client_id``. Labels may have dots in their
#: keys.
_PATH: Final = re.compile(r"(?P<field>\w+)(?:\[(?P<index>\d+)\]|\.(?P<key>.+))?", re.DOTALL)

#: A higher index is none: an unknown key may look like a path.
_MAX_INDEX: Final = 999_999


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake of a document: its path, what is wrong and how to correct it."""

    loc: Loc
    text: str

    def __str__(self) -> str:
        return f"{key_text(self.loc)}: {self.text}" if self.loc else self.text


def from_document(
    document: object, *, name: str | None = None, is_stored: bool = False
) -> Subscription | list[Mistake]:
    """Read a subscription, or return all mistakes.

    Args:
        document: See :mod:`receiver.telemetry.subscription_document`.
        name: The name of a subscription without ``name``; None: the key is required.
        is_stored: The receiver wrote it, so what it says of the last change holds.
    """
    if name is not None and isinstance(document, Mapping):
        document = {"name": name, **document}
    try:
        if is_stored and isinstance(document, Mapping):
            return read_document(document, **_last_change(document))
        return read_document(document)
    except SubscriptionError as error:
        return mistakes_of(error, document)


def mistakes_of(error: SubscriptionError, document: object) -> list[Mistake]:
    """Return all mistakes of a document that an error has."""
    errors = error.all if isinstance(document, Mapping) else (error,)
    return [_mistake(problem, document) for problem in errors]


def _last_change(document: Mapping[str, Any]) -> dict[str, Any]:
    by, at = document.get("changed_by"), document.get("changed_at")
    try:
        changed_at = time_from_text(at) if isinstance(at, str) else None
    except ValueError:
        changed_at = None
    return {"changed_by": by if isinstance(by, str) else None, "changed_at": changed_at}


def _mistake(error: SubscriptionError, document: object) -> Mistake:
    path = _PATH.fullmatch(error.field)
    if path is None or not isinstance(document, Mapping) or path["field"] not in document:
        return Mistake((), str(error).removeprefix(": "))
    more: Loc = ()
    if path["index"] is not None:
        more = (path["index"] if (at := whole_number(path["index"], _MAX_INDEX)) is None else at,)
    elif path["key"] is not None:
        more = (path["key"],)
    return Mistake((path["field"], *more), f"{error.value} {error.problem}; {error.fix}")
