"""Finds a subscription's prefixes that match no known metric.

Most are misspelt.

Known are the metrics of the catalogue and those that clients were seen to push. A client compares
prefixes with its own names, letter by letter (KIP-714, "Client metrics configuration"), so a
misspelt prefix asks for nothing, and no error says so.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final

from receiver.catalogue import CATALOGUE
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.subscription import SubscriptionSet

#: The longest beginning of a prefix that is compared.
_MAX_NAME_CHARS: Final = 256

#: Subscriptions that are named.
_MAX_NAMED: Final = 10


def unmatched(prefixes: Iterable[str], seen: Iterable[str]) -> list[str]:
    """Return a warning for each prefix that matches no catalogued and no seen metric."""
    unknown = [prefix for prefix in prefixes if prefix not in {"", "*"} and not _is_catalogued(prefix)]
    names = tuple(seen) if unknown else ()
    return [
        f"no known metric begins with {prefix!r}{_advice(prefix)}"
        for prefix in unknown
        if not any(name.startswith(prefix) for name in names)
    ]


def misspelt(
    subscriptions: SubscriptionSet, instances: Iterable[ClientInstance], seen: Iterable[str]
) -> dict[str, str]:
    """Return why a prefix of a subscription matches nothing, by subscription.

    By its name, and at most ten. Before the first push nobody knows, because an application may
    have metrics of its own.

    Args:
        subscriptions: Those that are active.
        instances: The known client instances.
        seen: The names of the metrics that clients were seen to push.
    """
    names = tuple(seen)
    suspects = {
        subscription.name: problems[0]
        for subscription in subscriptions.subscriptions
        if (problems := unmatched(subscription.metrics, names))
    }
    pushing: set[str] = set()
    if suspects:
        for instance in instances:
            if instance.last_push_at is not None:
                pushing.update(instance.assignment.matched)
    return {name: suspects[name] for name in sorted(pushing & suspects.keys())[:_MAX_NAMED]}


@lru_cache(4_096)
def _is_catalogued(prefix: str) -> bool:
    return any(name.startswith(prefix) for name in _catalogued())


@cache
def _catalogued() -> tuple[str, ...]:
    return tuple(metric.name for metric in CATALOGUE)


@cache
def _catalogued_prefixes() -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name in _catalogued():
        parts = name.split(".")
        for count in range(1, len(parts)):
            found[".".join(parts[:count]) + "."] = None
        found[name] = None
    return tuple(found)


def _advice(prefix: str) -> str:
    wanted = prefix[:_MAX_NAME_CHARS]
    inside = Counter(
        name[: name.index(f".{wanted}") + 1 + len(wanted)] for name in _catalogued() if f".{wanted}" in name
    )
    if inside:
        nearest = [prefix for prefix, _ in inside.most_common(1)]
    else:
        nearest = difflib.get_close_matches(wanted, _catalogued_prefixes(), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
