"""Only its own user can connect to the embedded PostgreSQL, for any path length."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from spark_streaming.embedded import EmbeddedError, EmbeddedPostgres

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(attack: Callable[[], object]) -> str:
    """Return the result of an attack by another user: the error's name, or data."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            result = f"got {attack()}"
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"
        os.write(writable, result.encode()[:4096])
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return result


def superuser(url: str) -> object:
    with psycopg.connect(url, connect_timeout=10) as connection:
        return connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()


def socket_folder(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, as pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="embedded-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@needs_root
@pytest.mark.parametrize(
    "long",
    [
        pytest.param(True, id="long-path", marks=pytest.mark.full),
        pytest.param(False, id="short-path"),
    ],
)
def test_another_user_cannot_connect(open_folder: Path, *, long: bool) -> None:
    data = open_folder / ("d" * 120 if long else "data")
    with EmbeddedPostgres(data) as server:
        sockets = socket_folder(server.url)
        assert (sockets == data) is not long
        assert superuser(server.url) == (True,)

        assert as_nobody(lambda: superuser(server.url)).startswith("OperationalError")
        assert as_nobody(lambda: list(data.iterdir())).startswith("PermissionError")
        assert as_nobody(lambda: list(sockets.iterdir())).startswith("PermissionError")

        # Were the folder and the socket open to all, PostgreSQL would still ask the kernel for the
        # uid.
        sockets.chmod(0o755)
        (sockets / ".s.PGSQL.5432").chmod(0o777)
        refused = as_nobody(lambda: superuser(server.url))
        assert 'Peer authentication failed for user "postgres"' in refused
        sockets.chmod(0o700)
    assert sockets.exists() is not long


def test_it_listens_on_a_private_socket_only(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / ("d" * 120)) as server:
        sockets = socket_folder(server.url)
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert stat.S_IMODE((sockets / ".s.PGSQL.5432").stat().st_mode) == 0o700
        with psycopg.connect(server.url) as connection:
            found = connection.execute(
                "SELECT current_setting('listen_addresses'), count(*) FILTER (WHERE auth_method = 'trust') "
                "FROM pg_hba_file_rules"
            ).fetchone()
        assert found == ("", 0)


@pytest.mark.full
def test_a_folder_that_trusted_all_users_is_corrected(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "data"):
        pass
    (tmp_path / "data" / "pg_hba.conf").write_text("local all all trust\n")
    with EmbeddedPostgres(tmp_path / "data") as server, psycopg.connect(server.url) as connection:
        methods = connection.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules").fetchall()
        assert ("trust",) not in methods


@pytest.mark.full
def test_processes_share_a_server_and_refuse_one_that_others_can_reach(tmp_path: Path) -> None:
    data = tmp_path / ("d" * 120)
    with EmbeddedPostgres(data) as first:
        with EmbeddedPostgres(data) as second:
            assert second.url == first.url
        assert superuser(first.url) == (True,)

        sockets = socket_folder(first.url)
        sockets.chmod(0o755)
        with pytest.raises(EmbeddedError, match="where other users can connect"):
            EmbeddedPostgres(data).start()
        sockets.chmod(0o700)

        first.stop()
        first.start()
        assert socket_folder(first.url) == sockets
    assert not sockets.exists()
