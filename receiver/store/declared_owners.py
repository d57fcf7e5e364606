"""The owners in force: those of a folder, then those that are put over REST.

An owner of the folder wins: one of the same name can't be put, and one that was put before is
hidden until the folder lacks it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import structlog

from receiver.store.owner_file import OwnerFile, OwnerStoreError
from receiver.store.owners import OwnersFolder
from receiver.store.store import ReadOnlyError
from receiver.telemetry.owners import MAX_OWNERS, Owner, Owners
from receiver.workers import call_in_loop

#: Makes a new owner of the existing one; None: there is none.
OwnerEdit: TypeAlias = Callable[[Owner | None], Owner | None]

_log = structlog.get_logger("receiver.store")


class DeclaredOwners:
    """Changes the owners in force. Use it from the event loop's thread only.

    Args:
        changed: Called with the owners before, and those in force from now on.
    """

    def __init__(self, changed: Callable[[Owners, Owners], object]) -> None:
        self.in_force = Owners()
        self._changed = changed
        self._changing: Final = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()
        self._folder: OwnersFolder | None = None
        self._file: OwnerFile | None = None
        self._put: tuple[Owner, ...] = ()
        self._unreadable: OwnerStoreError | None = None

    def use(self, folder: OwnersFolder | None, file: OwnerFile | None) -> None:
        """Use a folder and a file from now on; None: there is none. It reads the file."""
        if file is None or self._file is None or file.path != self._file.path:
            self._file, self._put, self._unreadable = file, (), None
            self._read()
        self._folder = folder
        self._combine()
        if folder is not None:

            def combine() -> None:
                if folder is self._folder:
                    self._combine()

            folder.follow(partial(call_in_loop, asyncio.get_running_loop(), combine))

    def _read(self) -> None:
        if self._file is None:
            return
        try:
            self._put, self._unreadable = self._file.read(), None
        except OwnerStoreError as error:
            self._unreadable = error
            _log.error("owners that were put over REST can't be read", problem=str(error))

    @property
    def problems(self) -> list[str]:
        """Why owners are not in force, in one sentence each."""
        problem = None if self._folder is None else self._folder.status.problem
        found = [] if problem is None else [f"owners.path: {problem}"]
        if self._unreadable is not None:
            found.append(f"owners.file: {self._unreadable}")
        if hidden := len(self._put) + len(self._of_folder()) - len(self.in_force.owners):
            found.append(
                f"owners: {hidden} of those that were put over REST are not in force, because the folder "
                f"has the same names, or all are more than {MAX_OWNERS}"
            )
        return found

    def find(self, team: str) -> Owner | None:
        """Return the owner in force of this name."""
        return next((owner for owner in self.in_force.owners if owner.team == team), None)

    def is_of_folder(self, owner: Owner) -> bool:
        """Return whether an owner in force comes from the folder."""
        return any(candidate is owner for candidate in self._of_folder())

    async def edit(self, team: str, make: OwnerEdit) -> None:
        """Replace an owner by what ``make`` returns, or delete it if that is None.

        No other change can happen between. An owner that stays the same is not written.

        Raises:
            ReadOnlyError: The owner comes from the folder, or there is no file for owners.
            OwnerStoreError: The file could not be written; nothing has changed.
            SubscriptionError: There would be too many owners.
        """
        # A caller that is cancelled must not leave file and memory with different owners.
        task = asyncio.get_running_loop().create_task(self._edit(team, make))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        await asyncio.shield(task)

    async def _edit(self, team: str, make: OwnerEdit) -> None:
        async with self._changing:
            folder, file = self._folder, self._file
            if folder is not None and team in {owner.team for owner in folder.content.owners}:
                problem = (
                    f"the owner {team!r} comes from files and can't be changed elsewhere: change its file"
                )
                raise ReadOnlyError(folder.path, problem)
            if file is None:
                problem = "there is no file for owners that are put: set it, or add a file to owners.path"
                raise ReadOnlyError("owners.file", problem)
            if self._unreadable is not None:
                raise self._unreadable
            existing = next((owner for owner in self._put if owner.team == team), None)
            made = make(existing)
            if made == existing:
                return
            others = [owner for owner in self._put if owner.team != team]
            put = tuple(sorted(others if made is None else [*others, made], key=lambda owner: owner.team))
            await asyncio.to_thread(Owners, (*self._of_folder(), *put))  # their number
            await asyncio.to_thread(file.write, put)
            if file is self._file:
                self._put = put
                self._combine()

    def _of_folder(self) -> tuple[Owner, ...]:
        return () if self._folder is None else self._folder.content.owners

    def _combine(self) -> None:
        first = self._of_folder()
        names = {owner.team for owner in first}
        later = [owner for owner in self._put if owner.team not in names]
        before, self.in_force = self.in_force, Owners([*first, *later][:MAX_OWNERS])
        self._changed(before, self.in_force)
