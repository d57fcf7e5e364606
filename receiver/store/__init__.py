"""Keeps subscriptions across restarts and orders their changes.

The telemetry core decides what a subscription means and what clients are asked for.
"""

from receiver.store.sqlite import SqliteSubscriptionStore, StoreError
from receiver.store.subscriptions import ChangedMeanwhileError, Subscriptions

__all__ = ["ChangedMeanwhileError", "SqliteSubscriptionStore", "StoreError", "Subscriptions"]
