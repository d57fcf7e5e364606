"""Opens the store that the settings name."""

from __future__ import annotations

from receiver.settings.subscriptions import SubscriptionStoreSettings
from receiver.store.files import FileSubscriptionStore
from receiver.store.kafka import KafkaSubscriptionStore
from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.store.store import SubscriptionStore


def open_store(settings: SubscriptionStoreSettings, *, strict: bool = False) -> SubscriptionStore:
    """Open the store; with ``strict``, a folder with mistakes is an error.

    Raises:
        StoreError: The store can't be used.
    """
    match settings.store:
        case "file":
            return FileSubscriptionStore(settings.folder, strict=strict)
        case "kafka":
            assert settings.kafka is not None, "a validator checks it"  # noqa: S101
            return KafkaSubscriptionStore(settings.kafka, settings.copy_file)
        case "sqlite":
            return SqliteSubscriptionStore(settings.sqlite_file)
