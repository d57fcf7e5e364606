"""Reads a plugin's secrets and certificates again when their files change.

Owns which files those are, when they are read, and the rule for files that can't be used: the
plugin goes on with what it has, and the log, ``/v1/plugins`` and a metric say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from receiver.host.config_values import config_values
from receiver.host.discovery import HostedPlugin, read_config
from receiver.host.failure_log import FailureLog
from receiver.host.redaction import Redaction
from receiver.settings.errors import SettingsError
from receiver.watch import Watch


class PluginFiles:
    """The files of one plugin's settings.

    Args:
        redaction: Learns each new secret, before the plugin can quote it.

    Attributes:
        problem: Why changed files can't be used; None while the files on disk are in use.
    """

    def __init__(
        self,
        hosted: HostedPlugin,
        *,
        log: FailureLog,
        redaction: Redaction,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.problem: str | None = None
        self._hosted = hosted
        self._log = log
        self._redaction = redaction
        files = sorted({*_secret_files(hosted.config), *_named_files(hosted.plugin.config)})
        self._watch = Watch(files, clock) if files else None
        self._is_due = files != [] and self._changed_since_loaded()

    def read_again(self) -> None:
        """Read the files before the next export, whether they have changed or not."""
        self._is_due = self._watch is not None

    def follow(self) -> None:
        """Give the plugin its files again if they have changed.

        Called on the plugin's thread.
        """
        if self._watch is None:
            return
        is_changed = self._watch.changed()
        if not (is_changed or self._is_due):
            return
        self._is_due = False
        before = self._hosted.plugin.config
        try:
            config = read_config(self._hosted)
            self._redaction.add(config)
            self._hosted.plugin.use_config(config)
        except BaseException as error:  # the contract: the plugin goes on with what it has
            # A file may be half written, so the next look may find it complete.
            self._watch.remind()
            text = str(error) if isinstance(error, SettingsError) else self._redaction.exception(error)
            self.problem = self._redaction.text(text.removeprefix("plugins[0]."))
            self._log.limited("changed files can't be used, the old ones stay", problem=self.problem)
        else:
            self.problem = None
            # A reload reads them also if nothing changed, of which there is nothing to say.
            if is_changed or config != before:
                self._log.info("secrets and certificates read again")

    def _changed_since_loaded(self) -> bool:
        # The watch began after the settings were read, so it can't see a change in between.
        try:
            return read_config(self._hosted) != self._hosted.plugin.config
        except SettingsError:
            return True


def _secret_files(value: Any) -> Iterator[Path]:
    """Find each ``{file: PATH}`` in a plugin's entry."""
    if isinstance(value, Mapping):
        if set(value) == {"file"} and isinstance(value["file"], str):
            yield Path(value["file"])
            return
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in value:
            yield from _secret_files(item)


def _named_files(config: object) -> Iterator[Path]:
    """Find each file, but not each folder, that checked settings name."""
    return (value for value in config_values(config) if isinstance(value, Path) and value.is_file())
