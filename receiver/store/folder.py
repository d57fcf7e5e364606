"""Follows a folder of files: its whole state is used when it is at rest and valid."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Generic, Literal, TypeAlias, TypeVar

import structlog

from receiver.store.entries import SUFFIXES
from receiver.store.store import StoreError, StoreStatus
from receiver.workers import start_thread
from spark_streaming.files import MAX_CONFIGURATION_BYTES, FileError, Stamp, read_bounded, stamp
from spark_streaming.system_errors import reason_of

#: Seconds between two looks at a folder.
EVERY_S: Final = 1.0

_MAX_LOGGED: Final = 20

_Content = TypeVar("_Content", bound=Sized)
_Entry = TypeVar("_Entry")
_Stamps = tuple[tuple[str, Stamp], ...]

_log = structlog.get_logger("receiver.store")


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


def read_all(
    paths: Iterable[Path],
    read: Callable[[Path, bytes], tuple[Sequence[_Entry], Sequence[str]]],
    mistakes: list[str],
) -> Iterator[tuple[Path, _Entry]]:
    """Yield what files have, each with its file, and add the mistakes of each file.

    Args:
        read: Returns what a file has, and its mistakes.
    """
    for path in paths:
        try:
            entries, wrong = read(path, read_bounded(path, MAX_CONFIGURATION_BYTES))
        except FileError as error:
            mistakes.append(f"{path.name}: {error}")
        except Exception as error:  # a file must neither end the process nor the following of the folder
            _log.exception("a file can't be read because of a defect", file=path.name)
            mistakes.append(f"{path.name}: {type(error).__name__}, a defect of the receiver; see the log")
        else:
            mistakes += wrong
            yield from ((path, entry) for entry in entries)


_What: TypeAlias = Literal["subscriptions", "owners"]
#: Whole, so that who searches the code for a line of the log finds it.
_NOT_APPLIED: Final[dict[_What, str]] = {
    "subscriptions": "subscriptions not applied, the last good ones stay",
    "owners": "owners not applied, the last good ones stay",
}


class FollowedFolder(Generic[_Content]):
    """The last good state of a folder, which is read again when it has changed.

    Args:
        what: What it holds, for the log.
        read: Reads the whole folder, or raises :class:`FolderError`.
        files: Lists its files, or raises :class:`FolderError`.
        content: In its place until it can be read, because clients' traffic must not wait for it.
        strict: Raise the error if it can't be read now.

    Attributes:
        content: What it held when it could be used last.
        status: Whether its present state is in force.
    """

    def __init__(
        self,
        what: _What,
        folder: Path,
        read: Callable[[Path], _Content],
        files: Callable[[Path], list[Path]],
        content: _Content,
        *,
        strict: bool,
    ) -> None:
        self.content = content
        self.status = StoreStatus(known=False)
        self._what = what
        self._folder = folder
        self._read = read
        self._files = files
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        # Taken before the files are read, so that a change in between is found.
        self._read_at = self._stamps()
        try:
            self._use(read(folder))
        except FolderError as error:
            if strict:
                raise
            self._failed(error)

    def follow(self, changed: Callable[[], None], every_s: float = EVERY_S) -> None:
        """Compare the folder from now on. ``changed`` is called in a thread."""
        self._thread = start_thread(f"{self._what}-folder", partial(self._watch, every_s, changed))

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
                content = self._read(self._folder)
            except FolderError as error:
                if self._stamps() == seen:
                    self._read_at = seen
                    self._failed(error)
                continue
            if self._stamps() != seen:
                continue  # changed while it was read: some files may be of the old state
            self._read_at = seen
            self._use(content)
            changed()

    def _use(self, content: _Content) -> None:
        self.content = content
        self.status = StoreStatus(failures=self.status.failures)

    def _failed(self, error: FolderError) -> None:
        count = len(error.mistakes)
        # Without the mistakes, which show values: the status has more readers than the log.
        summary = f"{self._folder}: {count} mistake{'s' * (count > 1)} in its files; the log has them"
        problem = summary if count else str(error)
        self.status = replace(self.status, problem=problem, failures=self.status.failures + 1)
        _log.error(
            _NOT_APPLIED[self._what],
            problem=str(error),
            in_force=len(self.content),
            mistakes=list(error.mistakes[:_MAX_LOGGED]),
        )

    def _stamps(self) -> _Stamps:
        try:
            return tuple((path.name, stamp(path)) for path in self._files(self._folder))
        except FolderError as error:
            return ((error.problem, None),)
