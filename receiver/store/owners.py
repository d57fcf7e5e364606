"""The owners of a folder of YAML files, which the receiver follows.

A file is a mapping of one owner, whose default name is the file's without its suffix, or a list of
owners.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from receiver.store.document import Mistake, mistakes_of
from receiver.store.entries import read_documents
from receiver.store.folder import EVERY_S, FolderError, FolderFollower, folder_error, folder_files, read_file
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.owners import MAX_OWNERS, Owner, Owners, read_owner

_MAX_LOGGED: Final = 20

_log = structlog.get_logger("receiver.store")


def read_owners(folder: Path) -> Owners:
    """Read and validate all files of a folder.

    Raises:
        FolderError: The folder can't be read, or files have mistakes; it has all of them.
    """
    mistakes: list[str] = []
    owners: list[Owner] = []
    places: dict[str, str] = {}  # of the name, by name
    for path in _files(folder):
        content, problem = read_file(path)
        if content is None:
            mistakes.append(problem)
            continue
        found, wrong = read_documents(path.name, content, path.stem, _from_document, "team")
        mistakes += wrong
        for owner, _, place in found:
            if (other := places.setdefault(owner.team, place)) != place:
                mistakes.append(
                    f"{place}: team: {owner.team!r} is an owner at {other} too; give another name"
                )
            owners.append(owner)
    if not mistakes:
        try:
            return Owners(owners)
        except SubscriptionError as error:
            mistakes.append(str(error))
    raise folder_error(folder, mistakes)


def _from_document(document: Any, team: str | None) -> Owner | list[Mistake]:
    try:
        return read_owner(document, team=team)
    except SubscriptionError as error:
        return mistakes_of(error, document)


class OwnersFolder:
    """The owners of a folder in their last good state; none while there was none.

    Args:
        strict: Raise :class:`FolderError` if it can't be used now.

    Attributes:
        problem: Why the folder's present state is not in force; None: it is.
    """

    def __init__(self, folder: Path, *, strict: bool = False) -> None:
        self.owners = Owners()
        self.problem: str | None = None
        self._folder = folder
        self._follower = FolderFollower(
            partial(read_owners, folder), partial(_files, folder), self._used, self._failed
        )
        self._follower.read(strict=strict)

    def follow(self, changed: Callable[[], None], every_s: float = EVERY_S) -> None:
        """Compare the folder from now on. ``changed`` is called in a thread."""
        self._follower.follow("owners-folder", every_s, changed)

    def close(self) -> None:
        """Stop following the folder."""
        self._follower.close()

    def _used(self, owners: Owners) -> None:
        self.owners, self.problem = owners, None

    def _failed(self, error: FolderError) -> None:
        count = len(error.mistakes)
        # Without the mistakes, which show values: a warning has more readers than the log.
        self.problem = (
            f"owners.path: {self._folder}: {count} mistake{'s' * (count > 1)} in its files; the log has them"
            if count
            else f"owners.path: {error}"
        )
        _log.error(
            "owners not applied, the last good ones stay",
            problem=str(error),
            in_force=len(self.owners.owners),
            mistakes=list(error.mistakes[:_MAX_LOGGED]),
        )


def _files(folder: Path) -> list[Path]:
    return folder_files(folder, MAX_OWNERS, "owners.path", "owners")
