"""Subscriptions from a folder of YAML files: a ConfigMap, or a checkout of Git.

All files are read and validated before any is applied. A folder with a mistake changes nothing. The
folder is compared once a second by the status of its files, on a thread, because a timer would cost
every client's request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from receiver.store.entries import Entry, name_taken, read_entries
from receiver.store.folder import EVERY_S, FolderError, FolderFollower, folder_error, folder_files, read_file
from receiver.store.store import ReadOnlyError, StoreStatus
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from receiver.telemetry.subscription_checks import MAX_SUBSCRIPTIONS

#: The most files, because each has one subscription at least.
MAX_FILES: Final = MAX_SUBSCRIPTIONS

_MAX_LOGGED: Final = 20

_log = structlog.get_logger("receiver.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The subscriptions of a folder."""

    subscriptions: SubscriptionSet
    """All of them, valid together."""
    files: dict[str, str]
    """The name of each subscription's file, by the subscription's name."""


def read_folder(folder: Path) -> Folder:
    """Read and validate all files of a folder.

    Names of files that begin with a dot are left out, and so are subfolders.

    Raises:
        FolderError: The folder can't be read, or files have mistakes; it has all of them.
    """
    mistakes: list[str] = []
    found: list[Subscription] = []
    places: dict[str, tuple[str, str]] = {}  # file, and place of the name in it
    for path in _files(folder):
        entries, wrong = _read(path)
        mistakes += wrong
        for entry in entries:
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

    A folder that can't be used at the start has no subscriptions until it can, because clients'
    traffic must not wait for it.

    Args:
        strict: Raise :class:`FolderError` in that case instead.
        every_s: Seconds between two looks at the folder.
    """

    def __init__(self, folder: Path, *, strict: bool = False, every_s: float = EVERY_S) -> None:
        self._folder = folder
        self._every_s = every_s
        self._status = StoreStatus()
        self._known = Folder(subscriptions=SubscriptionSet(), files={})
        self._is_known = False
        self._follower = FolderFollower(
            partial(read_folder, folder), partial(_files, folder), self._used, self._failed
        )
        self._follower.read(strict=strict)

    def load_all(self) -> tuple[Subscription, ...]:
        """Return the subscriptions of the last good state of the folder."""
        return self._known.subscriptions.subscriptions

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
        self._follower.follow("subscriptions-folder", self._every_s, changed)

    def status(self) -> StoreStatus:
        """Return whether the folder's present state is in force."""
        return self._status

    def close(self) -> None:
        """Stop following the folder."""
        self._follower.close()

    def _used(self, known: Folder) -> None:
        self._known, self._is_known = known, True
        self._status = StoreStatus(failures=self._status.failures)

    def _failed(self, error: FolderError) -> None:
        count = len(error.mistakes)
        self._status = StoreStatus(
            # Without the mistakes, which show values: the status has more readers than the log.
            problem=f"{self._folder}: {count} mistake{'s' * (count > 1)} in its files; the log has them"
            if count
            else str(error),
            failures=self._status.failures + 1,
            known=self._is_known,
        )
        _log.error(
            "subscriptions not applied, the last good ones stay",
            problem=str(error),
            in_force=len(self._known.subscriptions),
            mistakes=list(error.mistakes[:_MAX_LOGGED]),
        )

    def _read_only(self, name: str) -> ReadOnlyError:
        file = self._known.files.get(name)
        place = self._folder if file is None else self._folder / file
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


def _read(path: Path) -> tuple[list[Entry], list[str]]:
    """Return the subscriptions of a file, and its mistakes."""
    content, problem = read_file(path)
    if content is None:
        return [], [problem]
    try:
        return read_entries(path.name, content, stem=path.stem)
    except Exception as error:  # a file must neither end the process nor the following of the folder
        _log.exception("a file of subscriptions can't be read because of a defect", file=path.name)
        return [], [f"{path.name}: {type(error).__name__}, a defect of the receiver; see the log"]
