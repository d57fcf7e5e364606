"""The local copy of subscriptions whose truth is elsewhere; it survives a restart."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from receiver.store.document import from_document
from receiver.store.store import StoreError
from receiver.telemetry.subscription import Subscription, SubscriptionSet, within_bounds
from receiver.telemetry.subscription_document import to_document
from spark_streaming.files import FileError, MissingFileError, read_bounded
from spark_streaming.system_errors import reason_of

_MARK: Final = "kafka-telemetry-subscriptions"
_VERSION: Final = 1
#: A thousand subscriptions of the largest kind would be larger; those of people are not.
_MAX_BYTES: Final = 64 * 1024 * 1024


def replace_durably(path: Path, text: str) -> None:
    """Replace a file as a whole, with mode 0600; it is durable on return.

    Raises:
        OSError: It can't be written; the old file stays.
    """
    fresh = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class LocalCopy:
    """A JSON file of mode 0600, which is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[Subscription, ...] | None:
        """Return the subscriptions; None if there is no file yet.

        Raises:
            StoreError: The file can't be read, or is not a copy of subscriptions.
        """
        try:
            content = read_bounded(self._path, _MAX_BYTES)
        except MissingFileError:
            return None
        except FileError as error:
            raise self._error(str(error)) from None
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or document.get("content") != _MARK:
            raise self._error("is not a copy of subscriptions: set another subscriptions.path")
        if document.get("version") != _VERSION:
            raise self._error(
                f"was written by a newer version (supported: {_VERSION}): move it away, and the "
                "subscriptions are read from the cluster"
            )
        # An entry of a newer version, after a downgrade, is left out until the cluster is read.
        entries = document.get("subscriptions")
        if not isinstance(entries, list):
            raise self._error("is not a copy of subscriptions: set another subscriptions.path")
        read = (from_document(entry, is_stored=True) for entry in entries)
        kept, _ = within_bounds(entry for entry in read if isinstance(entry, Subscription))
        return SubscriptionSet(kept).subscriptions

    def write(self, subscriptions: Sequence[Subscription]) -> None:
        """Replace the file, durably.

        Raises:
            StoreError: It can't be written; the old file stays.
        """
        document = {
            "content": _MARK,
            "version": _VERSION,
            "subscriptions": [to_document(subscription) for subscription in subscriptions],
        }
        try:
            replace_durably(self._path, json.dumps(document))  # json.dump takes four times as long
        except OSError as error:
            raise self._error(f"cannot be written: {reason_of(error)}") from None

    def _error(self, problem: str) -> StoreError:
        return StoreError(str(self._path), problem)
