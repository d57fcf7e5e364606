"""What a store of subscriptions does, whatever keeps them.

Owns the protocol and its one error. A store knows nothing of clients or of REST.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from receiver.telemetry.subscription import Subscription

__all__ = ["StoreError", "SubscriptionStore"]


@dataclass(eq=False)
class StoreError(Exception):
    """The store cannot do what was asked: the operator must act.

    Attributes:
        place: Where the store is: its file.
        problem: What is wrong and what helps, on one line.
    """

    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


class SubscriptionStore(Protocol):
    """Keeps subscriptions. The calls block and may come from any thread, one after the other or at once."""

    def load_all(self) -> tuple[Subscription, ...]:
        """Every subscription, by name.

        Raises:
            StoreError: They cannot be read, or one of them is none.
        """

    def put(self, subscription: Subscription) -> None:
        """Keep a subscription in place of the one of its name; durable on return.

        Raises:
            StoreError: It could not be written; the old one, if any, is still there.
        """

    def delete(self, name: str) -> None:
        """Forget the subscription of a name, if there is one; durable on return.

        Raises:
            StoreError: It could not be written; the subscription is still there.
        """

    def close(self) -> None:
        """Let go of the store; nothing else may be called afterwards."""
