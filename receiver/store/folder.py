"""Follows a folder of files: its whole state is used when it is at rest and valid."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

from receiver.store.entries import SUFFIXES
from receiver.store.store import StoreError
from receiver.workers import start_thread
from spark_streaming.files import MAX_CONFIGURATION_BYTES, FileError, Stamp, read_bounded, stamp
from spark_streaming.system_errors import reason_of

#: Seconds between two looks at a folder.
EVERY_S: Final = 1.0

_Content = TypeVar("_Content")
_Stamps = tuple[tuple[str, Stamp], ...]


@dataclass(eq=False)
class FolderError(StoreError):
    """Files of a folder can't be used; no file is applied."""

    mistakes: tuple[str, ...] = ()
    """A line for each, ``FILE:LINE:COLUMN: FIELD: PROBLEM``."""


def folder_error(folder: Path, mistakes: list[str]) -> FolderError:
    """Return the error of a folder's mistakes, at least one."""
    first, count = mistakes[0], len(mistakes)
    more = f" (and {count - 1} more)" if count > 1 else ""
    return FolderError(str(folder), f"{first}{more}", tuple(mistakes))


def folder_files(folder: Path, most: int, setting: str, what: str) -> list[Path]:
    """Return the paths of a folder's files in order.

    Names of files that begin with a dot are left out, and so are subfolders.

    Args:
        setting: The key that names the folder, for errors.
        what: What the files have, for errors.

    Raises:
        FolderError: The folder can't be listed, or has too many files.
    """
    try:
        found = list(itertools.islice(_listed(folder), most + 1))
    except OSError as error:
        raise FolderError(
            str(folder), f"the folder can't be read: {reason_of(error)}; set {setting} to a folder"
        ) from None
    if len(found) > most:
        raise FolderError(str(folder), f"has more than {most} files; put several {what} into one file")
    return sorted(found)


def _listed(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        # A link to nothing is a mistake of its own. A pipe would block.
        if path.suffix in SUFFIXES and path.name[0] != "." and (path.is_file() or not path.exists()):
            yield path


def read_file(path: Path) -> tuple[bytes | None, str]:
    """Return the content of a file, or None and the mistake of one that can't be read."""
    try:
        return read_bounded(path, MAX_CONFIGURATION_BYTES), ""
    except FileError as error:
        return None, f"{path.name}: {error}"


class FolderFollower(Generic[_Content]):
    """Reads a folder, and again when it has changed.

    Args:
        read: Reads the whole folder, or raises :class:`FolderError`.
        files: Lists its files, or raises :class:`FolderError`.
        used: Called with what was read.
        failed: Called when the folder can't be used.
    """

    def __init__(
        self,
        read: Callable[[], _Content],
        files: Callable[[], list[Path]],
        used: Callable[[_Content], None],
        failed: Callable[[FolderError], None],
    ) -> None:
        self._read = read
        self._files = files
        self._used = used
        self._failed = failed
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        # Taken before the files are read, so that a change in between is found.
        self._read_at = self._stamps()

    def read(self, *, strict: bool) -> None:
        """Read the folder for the first time.

        Raises:
            FolderError: It can't be used, and ``strict`` is true.
        """
        try:
            self._used(self._read())
        except FolderError as error:
            if strict:
                raise
            self._failed(error)

    def follow(self, thread: str, every_s: float, changed: Callable[[], None]) -> None:
        """Compare the folder from now on, in a thread of this name."""
        self._thread = start_thread(thread, partial(self._watch, every_s, changed))

    def close(self) -> None:
        """Stop following the folder."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, every_s: float, changed: Callable[[], None]) -> None:
        seen = self._read_at
        while not self._closed.wait(every_s):
            before, seen = seen, self._stamps()
            # A checkout takes its time. So a state is read when it was there at two looks.
            if seen == self._read_at or seen != before:
                continue
            try:
                content = self._read()
            except FolderError as error:
                if self._stamps() == seen:
                    self._read_at = seen
                    self._failed(error)
                continue
            if self._stamps() != seen:
                continue  # changed while it was read: some files may be of the old state
            self._read_at = seen
            self._used(content)
            changed()

    def _stamps(self) -> _Stamps:
        try:
            return tuple((path.name, stamp(path)) for path in self._files())
        except FolderError as error:
            return ((error.problem, None),)
