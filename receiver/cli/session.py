"""HTTP sessions with the REST API: shared options, TLS, tokens and errors.

A token comes from a file or an environment variable, because all users of the machine can read the
arguments of a process.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import httpx
import typer

from receiver.cli.output import fail

DEFAULT_URL: Final = "http://127.0.0.1:8642"
URL_VARIABLE: Final = "KAFKA_TELEMETRY_URL"
TOKEN_VARIABLE: Final = "KAFKA_TELEMETRY_TOKEN"  # noqa: S105 -- its name

_TIMEOUT_S: Final = 10.0
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")

_Own = ParamSpec("_Own")

_Url = Annotated[
    str,
    typer.Option("--url", envvar=URL_VARIABLE, help="URL of the sidecar's REST API.", metavar="URL"),
]
_TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        help=f"File with a token; without it the variable {TOKEN_VARIABLE} holds the token.",
        metavar="FILE",
    ),
]
_CaFile = Annotated[
    Path | None,
    typer.Option("--ca-file", help="PEM file with the CA of the sidecar's certificate.", metavar="FILE"),
]
_Certificate = Annotated[
    Path | None,
    typer.Option("--client-certificate", help="PEM file with the certificate to show.", metavar="FILE"),
]
_Key = Annotated[
    Path | None,
    typer.Option("--client-key", help="PEM file with its private key, not encrypted.", metavar="FILE"),
]


def rest_command(command: Callable[Concatenate[httpx.Client, _Own], None]) -> Callable[..., None]:
    """Add the shared options to a REST command.

    Its first argument is the session.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = inspect.signature(rest_session, eval_str=True).parameters

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        options = {name: arguments.pop(name) for name in shared}
        with rest_session(**options) as session:
            command(session, **arguments)  # type: ignore[call-arg]  # the signature below is right

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *shared.values())
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def document_of(response: httpx.Response) -> Any:
    """Return the JSON document of a response, or None if it has no body.

    An error exits.
    """
    if response.is_success:
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError:
            raise fail(
                f"{response.url}: the response is not JSON; check that --url is a sidecar's REST API"
            ) from None
    try:
        detail = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        raise fail(
            f"{response.url}: status {response.status_code} without a reason; "
            "check that --url is a sidecar's REST API"
        ) from None
    if response.status_code == httpx.codes.UNAUTHORIZED:
        problem = "the token is not known" if "authorization" in response.request.headers else detail
        detail = f"{problem}; give --token-file or {TOKEN_VARIABLE}, or --client-certificate and --client-key"
    elif response.status_code == httpx.codes.FORBIDDEN:
        detail += "; give an editor's --token-file, or --client-certificate and --client-key"
    raise fail(detail)


@contextmanager
def rest_session(
    url: _Url = DEFAULT_URL,
    token_file: _TokenFile = None,
    ca_file: _CaFile = None,
    client_certificate: _Certificate = None,
    client_key: _Key = None,
) -> Iterator[httpx.Client]:
    """Open a session with the REST API. What goes wrong in it exits with a message."""
    token = read_token(token_file)
    try:
        # trust_env=False, because a proxy of the environment would see the token.
        with httpx.Client(
            base_url=url,
            timeout=_TIMEOUT_S,
            trust_env=False,
            headers={} if token is None else {"authorization": f"Bearer {token}"},
            verify=_trust(ca_file, client_certificate, client_key),
        ) as client:
            yield client
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        message = f"{url}: not a URL such as {DEFAULT_URL}; give --url or KAFKA_TELEMETRY_URL"
        raise fail(message, 2) from None
    except httpx.ConnectError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            fix = "use a host name of it in --url" if "mismatch" in str(error) else "give --ca-file"
            raise fail(f"{url}: its certificate is not trusted ({error}); {fix}") from None
        if "WRONG_VERSION_NUMBER" in str(error) or "RECORD_LAYER_FAILURE" in str(error):
            raise fail(f"{url}: it does not use TLS ({error}); write http:// in --url") from None
        raise fail(
            f"{url}: cannot connect ({error}); check that the sidecar runs there, or give --url"
        ) from None
    except httpx.TimeoutException:
        raise fail(f"{url}: no response within {_TIMEOUT_S:.0f} seconds") from None
    except httpx.HTTPError as error:
        problem = str(error).rstrip(".") or type(error).__name__
        if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
            # A server closes the connection without a certificate, or if it expects TLS.
            if url.startswith("http:"):
                problem += "; if it uses TLS, write https:// in --url"
            elif client_certificate is None:
                problem += "; if it requires a certificate, give --client-certificate and --client-key"
            else:
                problem += "; it may reject the --client-certificate: expired, or of an unknown CA"
        raise fail(f"{url}: {problem}") from None


def read_token(file: Path | None) -> str | None:
    """Return the token of a file, or without one of the environment.

    None if there is none.
    """
    source = TOKEN_VARIABLE if file is None else str(file)
    try:
        text = os.environ.get(TOKEN_VARIABLE) if file is None else file.read_text("ascii")
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="--token-file") from None
    except UnicodeDecodeError:
        text = "\n"  # not a token
    if text is None:
        return None
    if not _TOKEN.fullmatch(text.strip()):
        raise fail(f"{source}: expected one token, without blanks", 2)
    return text.strip()


def _trust(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    if certificate is None and key is not None:
        raise typer.BadParameter("requires --client-certificate", param_hint="--client-key")
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise typer.BadParameter(f"{ca}: {_reason(error)}", param_hint="--ca-file") from None
    if certificate is not None:
        try:
            # Without a password argument OpenSSL would prompt for one.
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:
            named = certificate if key is None else f"{certificate}, {key}"
            raise typer.BadParameter(
                f"{named}: {_reason(error)}", param_hint="--client-certificate"
            ) from None
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{error.reason or error}: expected PEM and a matching key that is not encrypted"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
