"""Subscriptions from a folder of YAML files: a ConfigMap, or a checkout of Git.

All files are read and validated before any is applied. A folder with a mistake changes nothing. The
folder is compared once a second by the status of its files, on a thread, because a timer would cost
every client's request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from receiver.store.entries import Entry, name_taken, read_entries
from receiver.store.folder import EVERY_S, FollowedFolder, folder_error, folder_files, read_all
from receiver.store.store import ReadOnlyError, StoreStatus
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from receiver.telemetry.subscription_checks import MAX_SUBSCRIPTIONS

#: The most files, because each has one subscription at least.
MAX_FILES: Final = MAX_SUBSCRIPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The subscriptions of a folder."""

    subscriptions: SubscriptionSet
    """All of them, valid together."""
    files: dict[str, str]
    """The name of each subscription's file, by the subscription's name."""

    def __len__(self) -> int:
        return len(self.subscriptions)


def read_folder(folder: Path) -> Folder:
    """Read and validate all files of a folder.

    Names of files that begin with a dot are left out, and so are subfolders.

    Raises:
        FolderError: The folder can't be read, or files have mistakes; it has all of them.
    """
    mistakes: list[str] = []
    found: list[Subscription] = []
    places: dict[str, tuple[str, str]] = {}  # file, and place of the name in it
    for path, entry in read_all(_files(folder), _read, mistakes):
        name = entry.subscription.name
        if name in places:
            mistakes.append(name_taken(entry, places[name][1]))
            continue
        places[name] = path.name, entry.place
        found.append(entry.subscription)
    if not mistakes:
        try:
            return Folder(
                subscriptions=SubscriptionSet(found),
                files={name: file for name, (file, _) in places.items()},
            )
        except SubscriptionError as error:  # too many of all files together
            mistakes.append(str(error))
    raise folder_error(folder, mistakes)


class FileSubscriptionStore:
    """A folder of subscriptions, which only its files change.

    A folder that can't be used at the start has no subscriptions until it can.

    Args:
        strict: Raise :class:`FolderError` in that case instead.
        every_s: Seconds between two looks at the folder.
    """

    def __init__(self, folder: Path, *, strict: bool = False, every_s: float = EVERY_S) -> None:
        self._path = folder
        self._every_s = every_s
        nothing = Folder(subscriptions=SubscriptionSet(), files={})
        self._folder = FollowedFolder("subscriptions", folder, read_folder, _files, nothing, strict=strict)

    def load_all(self) -> tuple[Subscription, ...]:
        """Return the subscriptions of the last good state of the folder."""
        return self._folder.content.subscriptions.subscriptions

    def put(self, subscription: Subscription) -> None:
        """Raise ReadOnlyError."""
        raise self._read_only(subscription.name)

    def delete(self, name: str) -> None:
        """Raise ReadOnlyError."""
        raise self._read_only(name)

    def refresh(self) -> None:
        """Do nothing, because REST does not change files."""

    def follow(self, changed: Callable[[], None]) -> None:
        """Compare the folder once a second from now on."""
        self._folder.follow(changed, self._every_s)

    def status(self) -> StoreStatus:
        """Return whether the folder's present state is in force."""
        return self._folder.status

    def close(self) -> None:
        """Stop following the folder."""
        self._folder.close()

    def _read_only(self, name: str) -> ReadOnlyError:
        file = self._folder.content.files.get(name)
        place = self._path if file is None else self._path / file
        return ReadOnlyError(
            str(place),
            f"the subscription {name!r} comes from files and can't be changed elsewhere: "
            + (
                "add a file with it to this folder"
                if file is None
                else "change this file, and the receiver follows"
            ),
        )


def _files(folder: Path) -> list[Path]:
    return folder_files(folder, MAX_FILES, "subscriptions.path", "subscriptions")


def _read(path: Path, content: bytes) -> tuple[list[Entry], list[str]]:
    return read_entries(path.name, content, stem=path.stem)
