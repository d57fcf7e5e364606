"""Where subscriptions are kept across restarts, and the one place that changes them.

Owns durability and the order of changes. What a subscription means, and what a client is asked for because
of it, belongs to the telemetry core.
"""

from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.store.store import StoreError, SubscriptionStore
from receiver.store.subscriptions import ChangedMeanwhileError, Subscriptions

__all__ = [
    "ChangedMeanwhileError",
    "SqliteSubscriptionStore",
    "StoreError",
    "SubscriptionStore",
    "Subscriptions",
]
