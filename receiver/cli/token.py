"""``token new``: creates a token for the REST API, which is stored nowhere else."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from receiver.cli.output import fail
from spark_streaming.system_errors import reason_of

_BYTES = 32

token_app = typer.Typer(
    help="Tokens for the REST API (rest.tokens).", no_args_is_help=True, rich_markup_mode=None
)


@token_app.callback()
def _token() -> None:
    pass


@token_app.command("new")
def new_token(
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Write the token to this new file with mode 0600.", metavar="FILE"),
    ] = None,
) -> None:
    """Create a random token and print its SHA-256 digest for the configuration.

    \u0008
    Examples:
      kafka-telemetry token new
      kafka-telemetry token new --file ops.token
    """
    token = secrets.token_urlsafe(_BYTES)
    if file is None:
        typer.echo(f"token:  {token}")
    else:
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise fail(f"{file}: {reason_of(error)}") from None
        with os.fdopen(descriptor, "w") as out:
            out.write(f"{token}\n")
    typer.echo(f"sha256: {hashlib.sha256(token.encode()).hexdigest()}")
