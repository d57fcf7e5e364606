"""The owners of a folder of YAML files, which the receiver follows.

A file is a mapping of one owner, whose default name is the file's without its suffix, or a list of
owners.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from receiver.store.document import Mistake, mistakes_of
from receiver.store.entries import read_documents
from receiver.store.folder import FollowedFolder, folder_error, folder_files, read_all
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.owners import MAX_OWNERS, Owner, Owners, read_owner


def read_owners(folder: Path) -> Owners:
    """Read and validate all files of a folder.

    Raises:
        FolderError: The folder can't be read, or files have mistakes; it has all of them.
    """
    mistakes: list[str] = []
    owners: list[Owner] = []
    places: dict[str, str] = {}  # of the name, by name
    for _, (owner, _, place) in read_all(_files(folder), _read, mistakes):
        if (other := places.setdefault(owner.team, place)) != place:
            mistakes.append(f"{place}: team: {owner.team!r} is an owner at {other} too; give another name")
        owners.append(owner)
    if not mistakes:
        try:
            return Owners(owners)
        except SubscriptionError as error:
            mistakes.append(str(error))
    raise folder_error(folder, mistakes)


def _read(path: Path, content: bytes) -> tuple[list[tuple[Owner, Any, str]], list[str]]:
    return read_documents(path.name, content, path.stem, _from_document, "team")


def _from_document(document: Any, team: str | None) -> Owner | list[Mistake]:
    try:
        return read_owner(document, team=team)
    except SubscriptionError as error:
        return mistakes_of(error, document)


class OwnersFolder(FollowedFolder[Owners]):
    """The owners of a folder in their last good state; none while there was none."""

    def __init__(self, folder: Path, *, strict: bool = False) -> None:
        self.path: Final = str(folder)
        super().__init__("owners", folder, read_owners, _files, Owners(), strict=strict)


def _files(folder: Path) -> list[Path]:
    return folder_files(folder, MAX_OWNERS, "owners.path", "owners")
