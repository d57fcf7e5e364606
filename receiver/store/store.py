"""The contract of a store of subscriptions, and its errors.

A store decides nothing about subscriptions. :class:`receiver.store.subscriptions.Subscriptions`
orders the changes and puts them in force.

Errors::

    StoreError           the operator: the store failed, nothing has changed
    +-- ReadOnlyError    ... subscriptions of this store are changed elsewhere
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from receiver.telemetry.subscription import Subscription

#: Names of subscriptions in a problem, and the characters of each.
_MAX_NAMES_SHOWN: Final = 3
_MAX_NAME_SHOWN: Final = 60


@dataclass(eq=False)
class StoreError(Exception):
    """The store failed, and the operator must act."""

    place: str  # the file, the folder or the brokers
    problem: str  # what is wrong and how to correct it, on one line

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


class ReadOnlyError(StoreError):
    """The store's subscriptions are changed elsewhere; the place says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """Whether the store can be used."""

    problem: str | None = None
    """Why the subscriptions in force are not the store's present ones, on one line and with no
    values of subscriptions but their names. None while they are."""
    failures: int = 0
    """Changes that could not be used and reads that failed, since the start."""
    known: bool = True
    """Whether the store's subscriptions, or a copy of them, have ever been read."""


def unusable(place: str, refused: Mapping[str, str]) -> str:
    """Return the problem of a store some of whose subscriptions can't be used.

    Args:
        place: The file or the brokers.
        refused: Why each of them can't be used, by name; it has values, so only the log shows it.
    """
    count = len(refused)
    names = ", ".join(repr(name[:_MAX_NAME_SHOWN]) for name in itertools.islice(refused, _MAX_NAMES_SHOWN))
    more = f" and {count - _MAX_NAMES_SHOWN} more" if count > _MAX_NAMES_SHOWN else ""
    return f"{place}: {count} subscription{'s' * (count > 1)} can't be used; the log has them: {names}{more}"


class SubscriptionStore(Protocol):
    """Keeps subscriptions. The methods block and may be called from any thread."""

    def load_all(self) -> tuple[Subscription, ...]:
        """Return all subscriptions by name.

        The last known ones while the store can't be used.

        Raises:
            StoreError: The store can't be read, and no subscriptions are known.
        """
        ...

    def put(self, subscription: Subscription) -> None:
        """Create or replace the subscription; it is durable on return.

        Raises:
            ReadOnlyError: Subscriptions of this store are changed elsewhere.
            StoreError: Nothing has changed.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete the subscription of this name if it exists.

        Durability and errors as above.
        """
        ...

    def refresh(self) -> None:
        """Read what other parties may have changed, so that :meth:`load_all` returns it.

        Raises:
            StoreError: The store can't be read.
        """
        ...

    def follow(self, changed: Callable[[], None]) -> None:
        """Call ``changed``, in any thread, after each change that another party made.

        It is called at most once for a store. It ends with :meth:`close`.
        """
        ...

    def status(self) -> StoreStatus:
        """Return whether the store can be used, without blocking."""
        ...

    def close(self) -> None:
        """Release the store. No other method may be called afterwards."""
        ...
