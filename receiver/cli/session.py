"""HTTP sessions with the REST API of one or several sidecars.

It has the shared options, TLS, tokens and errors. A token comes from a file or an environment
variable, because all users of the machine can read the arguments of a process.
"""

from __future__ import annotations

import functools
import inspect
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec, TypeVar

import httpx
import typer

from receiver.cli.output import OutputFormat, fail, plain
from receiver.cli.profiles import (
    DEFAULT_URL,
    PROFILE_VARIABLE,
    URL_VARIABLE,
    ProfileError,
    Target,
    profile_names,
    targets,
)
from spark_streaming.files import FileError, one_token
from spark_streaming.files import read_token as read_token_file
from spark_streaming.http_clients import no_tls, plain_words, request_problem

TOKEN_VARIABLE: Final = "KAFKA_TELEMETRY_TOKEN"  # noqa: S105 -- its name

#: Seconds for a request.
TIMEOUT_S: Final = 10.0

#: The most sidecars that are asked at once.
_AT_ONCE: Final = 16

_Own = ParamSpec("_Own")
_Result = TypeVar("_Result")


def _complete_profile(incomplete: str) -> list[str]:
    try:
        return [name for name in profile_names(os.environ) if name.startswith(incomplete)]
    except ProfileError:
        return []


_Urls = Annotated[
    list[str] | None,
    typer.Option(
        help=f"URL of a sidecar's REST API; repeat it for several. Without it and --profile, the variable "
        f"{URL_VARIABLE} or {PROFILE_VARIABLE} counts, or else {DEFAULT_URL}.",
        metavar="URL",
    ),
]
_ProfileNames = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        "-p",
        help="Name of a profile, or a regular expression (RE2) for whole names; repeat it for several. "
        "Profiles are in ~/.config/kafka-telemetry/profiles.yaml.",
        metavar="NAME",
        autocompletion=_complete_profile,
    ),
]
_TokenFile = Annotated[
    Path | None,
    typer.Option(
        help=f"File with a token; without it the variable {TOKEN_VARIABLE} holds the token.", metavar="FILE"
    ),
]
_CaFile = Annotated[
    Path | None, typer.Option(help="PEM file with the CA of the sidecar's certificate.", metavar="FILE")
]
_Certificate = Annotated[
    Path | None, typer.Option(help="PEM file with the certificate to show.", metavar="FILE")
]
_Key = Annotated[
    Path | None, typer.Option(help="PEM file with its private key, not encrypted.", metavar="FILE")
]


class OptionGroup:
    """A dataclass whose fields are options of each command that has it as a parameter."""


class Session(httpx.Client):
    """An HTTP session with one sidecar.

    Attributes:
        cluster: The sidecar's name if the command asks several; otherwise None.
        missing: Why receivers of its cluster did not answer, by URL.
    """

    cluster: str | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.missing: dict[str, str] = {}

    def answered(self, document: Mapping[str, Any]) -> None:
        """Keep which receivers of the sidecar's cluster an answer lacks."""
        for member in document.get("members") or ():
            if not member["answered"]:
                self.missing[member["url"]] = member["problem"]

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request. The response knows the sidecar's name, for errors."""
        response = super().send(request, **options)
        response.extensions["cluster"] = self.cluster
        return response


class Fleet:
    """The sidecars that a command asks.

    Attributes:
        status: The exit status because of those that can't be asked; 0 if all can.
    """

    def __init__(self, asked: Sequence[Target]) -> None:
        self.targets = asked
        self.status = 0

    @property
    def is_one(self) -> bool:
        """Whether there is one sidecar only."""
        return len(self.targets) == 1

    def read(self, read: Callable[[Session], _Result]) -> list[tuple[Target, _Result | None]]:
        """Read from all sidecars at once.

        One that can't be read from has a message on stderr, and None.
        """

        def read_from(target: Target) -> _Result | None:
            try:
                with self.session(target) as session:
                    return read(session)
            except typer.Exit as exit_:
                self.status = max(self.status, exit_.exit_code)
                return None

        with ThreadPoolExecutor(min(len(self.targets), _AT_ONCE)) as threads:
            return list(zip(self.targets, threads.map(read_from, self.targets), strict=True))

    @contextmanager
    def session(self, target: Target) -> Iterator[Session]:
        """Open a session; what goes wrong exits with a message that names it."""
        cluster = None if self.is_one else target.name
        try:
            with rest_session(target) as session:
                session.cluster = cluster
                yield session
                for url, problem in session.missing.items():
                    fail(f"without {url}: {problem}")
                    self.status = max(self.status, 1)
        except typer.BadParameter as error:
            if cluster is None:
                raise
            raise fail(f"{cluster}: {error.message}", 2) from None

    def lists(self, read: Callable[[Session], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """Read a list from all sidecars.

        If they are several, each item has its sidecar's name as ``cluster``. Of sidecars of one
        cluster, which answer for each other, an item is listed once. If none can be asked, it
        exits.
        """
        answers = self.read(read)
        if all(items is None for _, items in answers):
            raise typer.Exit(self.status)
        if self.is_one:
            return answers[0][1] or []
        seen: set[tuple[Any, ...]] = set()
        found = []
        for target, items in answers:
            for item in items or ():
                known = (item.get("receiver"), item.get("client_instance_id"), item.get("id"))
                if known[0] is None or known not in seen:
                    seen.add(known)
                    found.append({"cluster": target.name, **item})
        return found


def fleet_command(command: Callable[Concatenate[Fleet, _Own], None]) -> Callable[..., None]:
    """Add the shared options to a command that asks all sidecars at once.

    Its first argument is the fleet.
    """

    def run(asked: list[Target], arguments: dict[str, Any]) -> None:
        fleet = Fleet(asked)
        command(fleet, **arguments)  # type: ignore[call-arg]  # the signature is right
        if fleet.status:
            raise typer.Exit(fleet.status)

    return _with_options(command, run)


def rest_command(command: Callable[Concatenate[Session, _Own], None]) -> Callable[..., None]:
    """Add the shared options to a command that reads from one sidecar after the other.

    Its first argument is the session.
    """
    return _with_options(command, functools.partial(_each, command, stops=False))


def asked_session(command: Callable[Concatenate[Target, _Own], None]) -> Callable[..., None]:
    """Add the shared options to a command that asks one sidecar while it runs.

    Its first argument is the sidecar.
    """

    def run(asked: list[Target], arguments: dict[str, Any]) -> None:
        if len(asked) > 1:
            raise fail("give one --url or --profile: one sidecar answers for its cluster", 2)
        command(asked[0], **arguments)  # type: ignore[call-arg]  # the signature is right

    return _with_options(command, run)


def change_command(command: Callable[Concatenate[Session, _Own], None]) -> Callable[..., None]:
    """Add the shared options to a command that changes one sidecar after the other.

    It stops at the first that fails, so that a mistake does not reach the others.
    """
    return _with_options(command, functools.partial(_each, command, stops=True))


def _each(
    command: Callable[..., None], asked: list[Target], arguments: dict[str, Any], *, stops: bool
) -> None:
    fleet = Fleet(asked)
    status = 0
    for number, target in enumerate(asked, 1):
        if not fleet.is_one and not is_document(arguments.get("output")):
            typer.echo(f"{plain(target.name)}:")
        try:
            with fleet.session(target) as session:
                command(session, **arguments)
        except typer.Exit as exit_:
            status = max(status, exit_.exit_code)
            if exit_.exit_code and stops and number < len(asked):
                left = ", ".join(target.name for target in asked[number:])
                raise fail(f"stopped at {target.name}; nothing was changed at {left}", status) from None
    if status := max(status, fleet.status):
        raise typer.Exit(status)


def is_document(output: OutputFormat | None) -> bool:
    """Whether a command writes a document for programs."""
    return output in {OutputFormat.JSON, OutputFormat.YAML}


def _with_options(
    command: Callable[..., None], run: Callable[[list[Target], dict[str, Any]], None]
) -> Callable[..., None]:
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = inspect.signature(asked_targets, eval_str=True).parameters
    groups = {it.name: group for it in own if (group := _group(it)) is not None}

    @functools.wraps(command)
    def call(**arguments: Any) -> None:
        options = {name: arguments.pop(name) for name in shared}
        for name, group in groups.items():
            arguments[name] = group(
                **{field: arguments.pop(field) for field in inspect.signature(group).parameters}
            )
        run(asked_targets(**options), arguments)

    parameters = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for it in (*own, *shared.values())
        for option in _options(it)
    ]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _group(parameter: inspect.Parameter) -> type[OptionGroup] | None:
    kind = parameter.annotation
    return kind if isinstance(kind, type) and issubclass(kind, OptionGroup) else None


def _options(parameter: inspect.Parameter) -> Iterable[inspect.Parameter]:
    group = _group(parameter)
    return (parameter,) if group is None else inspect.signature(group, eval_str=True).parameters.values()


def asked_targets(
    url: _Urls = None,
    profile: _ProfileNames = None,
    token_file: _TokenFile = None,
    ca_file: _CaFile = None,
    client_certificate: _Certificate = None,
    client_key: _Key = None,
) -> list[Target]:
    """Return the sidecars that the shared options name; a mistake exits."""
    given = Target(
        name="",
        url="",
        token_file=token_file,
        ca_file=ca_file,
        client_certificate=client_certificate,
        client_key=client_key,
    )
    try:
        return targets(url or (), profile or (), given, os.environ)
    except ProfileError as error:
        for line in str(error).splitlines():
            fail(line)
        raise typer.Exit(2) from None


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
    cluster = response.extensions.get("cluster")
    if response.status_code == httpx.codes.UNAUTHORIZED:
        problem = "the token is not known" if "authorization" in response.request.headers else detail
        detail = f"{problem}; give --token-file or {TOKEN_VARIABLE}, or --client-certificate and --client-key"
    elif response.status_code == httpx.codes.FORBIDDEN:
        detail += "; give an editor's --token-file, or --client-certificate and --client-key"
    raise fail(detail if cluster is None else f"{cluster}: {detail}")


@contextmanager
def rest_session(target: Target) -> Iterator[Session]:
    """Open a session with the REST API. What goes wrong in it exits with a message."""
    url, client_certificate = target.url, target.client_certificate
    headers = request_headers(target)
    try:
        # trust_env=False, because a proxy of the environment would see the token.
        with Session(
            base_url=url,
            timeout=TIMEOUT_S,
            trust_env=False,
            headers=headers,
            verify=trust(target),
        ) as client:
            yield client
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        message = f"{url}: not a URL such as {DEFAULT_URL}; give --url or KAFKA_TELEMETRY_URL"
        raise fail(message, 2) from None
    except httpx.ConnectError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            fix = "use a host name of it in --url" if "mismatch" in str(error) else "give --ca-file"
            raise fail(f"{url}: its certificate is not trusted ({plain_words(error)}); {fix}") from None
        if "WRONG_VERSION_NUMBER" in str(error) or "RECORD_LAYER_FAILURE" in str(error):
            raise fail(f"{url}: it does not use TLS; write http:// in --url") from None
        raise fail(
            f"{url}: {request_problem(error, TIMEOUT_S)}; check that the sidecar runs there, or give --url"
        ) from None
    except httpx.TimeoutException:
        raise fail(f"{url}: no response within {TIMEOUT_S:.0f} seconds") from None
    except httpx.HTTPError as error:
        problem = request_problem(error, TIMEOUT_S).rstrip(".")
        if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
            # A server closes the connection without a certificate, or if it expects TLS.
            if url.startswith("http:"):
                problem += "; if it uses TLS, write https:// in --url"
            elif client_certificate is None:
                problem += "; if it requires a certificate, give --client-certificate and --client-key"
            else:
                problem += "; it may reject the --client-certificate: expired, or of an unknown CA"
        raise fail(f"{url}: {problem}") from None


def request_headers(target: Target) -> dict[str, str]:
    """Return the headers of requests to a sidecar; a wrong token file exits."""
    token = read_token(target.token_file)
    return {} if token is None else {"authorization": f"Bearer {token}"}


def read_token(file: Path | None) -> str | None:
    """Return the token of a file, or without one of the environment.

    None if there is none.
    """
    if file is not None:
        try:
            return read_token_file(file)
        except FileError as error:
            raise typer.BadParameter(f"{file}: {error}", param_hint="--token-file") from None
    text = os.environ.get(TOKEN_VARIABLE)
    try:
        return None if text is None else one_token(text)
    except FileError as error:
        raise fail(f"{TOKEN_VARIABLE}: {error}", 2) from None


def trust(target: Target) -> ssl.SSLContext:
    """Return the TLS context for a sidecar; a wrong file exits."""
    ca, certificate, key = target.ca_file, target.client_certificate, target.client_key
    if certificate is None and key is not None:
        raise typer.BadParameter("requires --client-certificate", param_hint="--client-key")
    context = no_tls() if ca is None and target.url.lower().startswith("http:") else _verifying(ca)
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


def _verifying(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise typer.BadParameter(
            f"{ca or 'the authorities of the system'}: {_reason(error)}", param_hint="--ca-file"
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{error.reason or error}: expected PEM and a matching key that is not encrypted"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
