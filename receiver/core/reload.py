"""The core's part of a reload: build everything, then use all or drop all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from receiver.api import ServerError
from receiver.bridge.listener import BridgeListenerError
from receiver.cluster.rest_client import RestFilesError
from receiver.core.changes import Changes
from receiver.settings.errors import SettingsError
from receiver.store.store import StoreError
from receiver.supervisor.channel import ControlChannel
from receiver.telemetry.errors import InvalidValueError
from receiver.workers import start_task

#: What an operator can correct.
_REFUSALS: Final = (
    SettingsError,
    InvalidValueError,
    StoreError,
    ServerError,
    BridgeListenerError,
    RestFilesError,
)

_log = structlog.get_logger("receiver.core")


class Reload:
    """One configuration that the supervisor has sent; it is built at once.

    Args:
        channel: The supervisor gets ``prepared``, ``refused`` or ``applied``.
        build: Adds the changes of the configuration, or raises the error of the first part that
            can't be had.
    """

    def __init__(
        self, number: int, channel: ControlChannel, build: Callable[[Changes], Awaitable[None]]
    ) -> None:
        self._number = number
        self._channel = channel
        self._changes = Changes()
        self._building = start_task("reload", self._prepare(build))

    async def _prepare(self, build: Callable[[Changes], Awaitable[None]]) -> None:
        try:
            await build(self._changes)
        except _REFUSALS as error:
            self._refuse(error)
        except Exception as error:
            _log.exception("a configuration can't be prepared")
            self._refuse(error)
        else:
            self._channel.send("prepared", reload=self._number)

    def _refuse(self, error: Exception) -> None:
        self._discard()
        if isinstance(error, SettingsError):  # the supervisor knows where the key is from
            place = {"source": error.source, "key": error.key, "value": error.value, "loc": error.loc}
            further = len(error.further)
            self._channel.send(
                "refused", reload=self._number, problem=error.problem, place=place, further=further
            )
        else:
            self._channel.send("refused", reload=self._number, problem=str(error))

    def _discard(self) -> None:
        changes, self._changes = self._changes, Changes()
        changes.discard()

    def commit(self) -> None:
        """Put the configuration in force."""
        self._changes.commit()
        self._channel.send("applied", reload=self._number)
        self._finishing = start_task("reload", self._changes.finish())

    def abort(self) -> None:
        """Drop what was built."""
        self._building.cancel()
        self._discard()
