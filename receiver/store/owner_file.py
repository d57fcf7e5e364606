"""The file of the owners that are put over REST."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from receiver.store.local_copy import replace_durably
from receiver.store.store import StoreError
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.owners import Owner, read_owner, to_document
from spark_streaming.files import FileError, MissingFileError, read_bounded
from spark_streaming.system_errors import reason_of

_MARK: Final = "kafka-telemetry-owners"
_VERSION: Final = 1
#: A thousand owners of the largest kind would be larger, and are not written.
_MAX_BYTES: Final = 64 * 1024 * 1024


@dataclass(eq=False)
class OwnerStoreError(StoreError):
    """The file of owners can't be used; nothing has changed."""


class OwnerFile:
    """A JSON file of mode 0600, which is replaced as a whole. Its methods block."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    def read(self) -> tuple[Owner, ...]:
        """Return the owners by name; none if there is no file yet.

        Raises:
            OwnerStoreError: The file can't be read, or is not a file of owners.
        """
        try:
            content = read_bounded(self.path, _MAX_BYTES)
        except MissingFileError:
            return ()
        except FileError as error:
            raise self._error(str(error)) from None
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        match document:
            case {"content": mark, "version": int(version), "owners": list(entries)} if mark == _MARK:
                pass
            case _:
                raise self._error("is not a file of owners: set another owners.file")
        if version != _VERSION:
            raise self._error(f"was written by a newer version (supported: {_VERSION}): run that version")
        try:
            owners = [_from_entry(entry) for entry in entries]
        except (KeyError, TypeError, ValueError) as error:
            raise self._error(f"an owner in it can't be used: {error}") from None
        return tuple(sorted(owners, key=lambda owner: owner.team))

    def write(self, owners: Iterable[Owner]) -> None:
        """Replace the file, durably.

        Raises:
            OwnerStoreError: It can't be written; the old file stays.
        """
        entries = [
            {"owner": to_document(owner), "changed_by": owner.changed_by, "changed_at": owner.changed_at}
            for owner in owners
        ]
        content = json.dumps({"content": _MARK, "version": _VERSION, "owners": entries})
        if len(content) > _MAX_BYTES:
            raise self._error(f"would have more than {_MAX_BYTES} bytes: shorten the owners' matches")
        try:
            replace_durably(self.path, content)
        except OSError as error:
            raise self._error(f"cannot be written: {reason_of(error)}") from None

    def _error(self, problem: str) -> OwnerStoreError:
        return OwnerStoreError(str(self.path), problem)


def _from_entry(entry: dict[str, object]) -> Owner:
    try:
        owner = read_owner(entry["owner"])
    except SubscriptionError as error:
        raise ValueError(str(error)) from None
    who, when = entry["changed_by"], entry["changed_at"]
    if not isinstance(who, str | None) or not isinstance(when, str | None):
        raise TypeError("changed_by and changed_at are no texts")
    return owner.changed(by=who, at=when)
