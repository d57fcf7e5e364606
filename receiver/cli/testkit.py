"""``testkit``: brokers that judge the telemetry of Kafka clients."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from receiver.cli.output import fail
from receiver.patterns import compile_pattern
from receiver.settings.hostport import HostPort
from receiver.tls import tls_problem
from receiver.wire.errors import WireError
from spark_streaming.system_errors import reason_of

if TYPE_CHECKING:
    from receiver.testkit.broker_client import Access
    from receiver.testkit.checks.judged import Judged
    from receiver.testkit.endpoint import Endpoint, EndpointOptions
    from receiver.testkit.judge import ClientJudgement
    from receiver.testkit.kit import Credentials

#: The variable with the password of SASL PLAIN.
PASSWORD_VARIABLE: Final = "KAFKA_TELEMETRY_TESTKIT_PASSWORD"  # noqa: S105 # a name, not a password

#: The mechanisms of SASL by which a broker is asked.
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_EXIT_FAILED: Final = 1
_EXIT_USAGE: Final = 2


class ReportFormat(StrEnum):
    """How the report is written."""

    JSON = "json"
    JUNIT = "junit"
    TEXT = "text"


def judge_clients(
    *,
    bind: Annotated[
        list[str],
        typer.Option(
            help="Where to listen. Each further --bind is a further broker of the cluster; port 0 lets the "
            "system choose.",
            metavar="HOST:PORT",
        ),
    ] = ["127.0.0.1:19092"],  # noqa: B006 # typer's signature of a default
    advertise: Annotated[
        list[str] | None,
        typer.Option(
            help="The address that clients are told, if it is not that of --bind; one for each --bind.",
            metavar="HOST:PORT",
        ),
    ] = None,
    script: Annotated[
        str,
        typer.Option(
            help="YAML file with steps, or default, invalid-record, invalid-request.", metavar="FILE"
        ),
    ] = "default",
    report: Annotated[ReportFormat, typer.Option(help="The report's format.")] = ReportFormat.TEXT,
    seconds: Annotated[
        float | None,
        typer.Option(help="End after so many seconds, not only at a signal.", min=0.1, metavar="N"),
    ] = None,
    clients: Annotated[
        int, typer.Option(help="Fail also if fewer clients than this were judged.", min=0, metavar="N")
    ] = 0,
    only: Annotated[
        str | None, typer.Option(help="Judge only clients whose whole client id matches.", metavar="REGEX")
    ] = None,
    badge: Annotated[
        Path | None, typer.Option(help="Write a badge as JSON for shields.io/endpoint.", metavar="FILE")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Judge this broker, or what stands in front of one, by a scripted client, and end. A "
            "subscription with an interval of at most 10 s must match software name "
            "kafka-telemetry-testkit.",
            metavar="HOST:PORT",
        ),
    ] = None,
    sasl_user: Annotated[
        str | None,
        typer.Option(
            help="Demand SASL PLAIN from this user; with --against, log in as this user. The variable "
            f"{PASSWORD_VARIABLE} has the password.",
            metavar="NAME",
        ),
    ] = None,
    sasl_mechanism: Annotated[
        str | None,
        typer.Option(
            help=f"With --against, how to log in: {', '.join(_MECHANISMS)}; PLAIN by default.", metavar="NAME"
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file with the certificate chain to show: TLS.", metavar="FILE")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="PEM file with its private key, not encrypted.", metavar="FILE")
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            help="With --against, PEM file with the authorities that the broker's certificate is checked "
            "against: TLS.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Judge the telemetry of Kafka clients, without a broker.

    Start it, run the client against it, close the client, and stop it by SIGINT or SIGTERM. Each
    client goes through the script, in about a minute for the default one. The report on standard
    output has a verdict on each check. The exit status is 1 if a check of severity "must" failed.

    \u0008
    Examples:
      kafka-telemetry testkit --bind 127.0.0.1:19092 --report json
      kafka-telemetry testkit --bind 127.0.0.1:19092 --bind 127.0.0.1:19093 --seconds 90 --clients 1
      kafka-telemetry testkit --script steps.yaml --report junit > report.xml
    """
    # Imported here, because it imports kafka-python and the other commands should start fast.
    from receiver.testkit import report as reports
    from receiver.testkit.run import run
    from receiver.testkit.script import ScriptError, load_script

    if against is not None:
        access = _access(sasl_user, sasl_mechanism or "PLAIN", tls_certificate, tls_key, tls_ca)
        raise _judge_broker(_address(against, "--against"), access, report)
    for option, value in (("--sasl-mechanism", sasl_mechanism), ("--tls-ca", tls_ca)):
        if value is not None:
            raise typer.BadParameter("only with --against", param_hint=option)
    try:
        steps = load_script(script)
    except ScriptError as error:
        for line in str(error).splitlines():
            fail(line)
        raise typer.Exit(_EXIT_USAGE) from None
    options = _options(bind, advertise or [], sasl_user, tls_certificate, tls_key)
    try:
        judged = asyncio.run(run(steps, options, seconds=seconds, started=_say_started, wanted=_wanted(only)))
    except OSError as error:
        raise fail(f"--bind: {reason_of(error)}", _EXIT_USAGE) from None
    _write(judged, report, "clients")
    if badge is not None:
        try:
            badge.write_text(reports.as_badge(judged))
        except OSError as error:
            raise fail(f"--badge: {badge}: {reason_of(error)}", _EXIT_USAGE) from None
    raise typer.Exit(_status(judged, clients, failed=reports.has_failed(judged)))


def _judge_broker(address: HostPort, access: Access, report: ReportFormat) -> typer.Exit:
    from receiver.gateway.upstream.broker_login import BrokerLoginError
    from receiver.testkit.broker_checks import judge_broker
    from receiver.testkit.report import has_failed

    try:
        judged = judge_broker(address, access)
    except ssl.SSLError as error:
        return fail(f"--against: {address}: {tls_problem(error)}", _EXIT_USAGE)
    except BrokerLoginError as error:
        return fail(f"--against: {address}: {error}", _EXIT_USAGE)
    except (OSError, EOFError, WireError) as error:
        problem = reason_of(error) if isinstance(error, OSError) else str(error)
        return fail(f"--against: {address}: {problem}; is it a Kafka listener?", _EXIT_USAGE)
    _write([judged], report, "brokers")
    return typer.Exit(_EXIT_FAILED if has_failed([judged]) else 0)


def _write(judged: Sequence[Judged], report: ReportFormat, of: str) -> None:
    from receiver.testkit import report as reports

    if report is ReportFormat.JSON:
        text = reports.as_json(judged, of)
    else:
        text = reports.as_junit(judged) if report is ReportFormat.JUNIT else reports.as_text(judged)
    typer.echo(text, nl=False)


def _status(judged: list[ClientJudgement], clients: int, *, failed: bool) -> int:
    if len(judged) < clients:
        fail(f"--clients {clients}: {len(judged)} were judged; connect them for 5 seconds or more")
        return _EXIT_FAILED
    if not judged:
        typer.echo("kafka-telemetry: no client was there for 5 seconds or more", err=True)
    return _EXIT_FAILED if failed else 0


def _say_started(endpoint: Endpoint) -> None:
    addresses = ", ".join(map(str, endpoint.addresses))
    typer.echo(f"kafka-telemetry: testkit listens on {addresses}", err=True)


def _options(
    bind: list[str], advertise: list[str], user: str | None, certificate: Path | None, key: Path | None
) -> EndpointOptions:
    from receiver.testkit.endpoint import EndpointOptions

    if advertise and len(advertise) != len(bind):
        raise typer.BadParameter(
            f"{len(advertise)} for {len(bind)} --bind; give one for each", param_hint="--advertise"
        )
    tls = None
    if certificate is not None or key is not None:
        tls = _shown(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), certificate, key)
    return EndpointOptions(
        bind=tuple(_address(text, "--bind") for text in bind),
        advertise=tuple(_address(text, "--advertise") for text in advertise),
        credentials=_credentials(user),
        tls=tls,
    )


def _access(
    user: str | None, mechanism: str, certificate: Path | None, key: Path | None, ca: Path | None
) -> Access:
    from receiver.testkit.broker_client import Access

    if mechanism not in _MECHANISMS:
        raise typer.BadParameter(
            f"{mechanism}: is none of {', '.join(_MECHANISMS)}", param_hint="--sasl-mechanism"
        )
    tls = None
    if ca is not None:
        try:
            tls = ssl.create_default_context(cafile=ca)
        except OSError as error:  # ssl.SSLError is one
            raise typer.BadParameter(
                f"{ca}: {_pem_problem(error, 'certificate')}", param_hint="--tls-ca"
            ) from None
    if certificate is not None or key is not None:
        tls = _shown(tls or ssl.create_default_context(), certificate, key)
    return Access(tls=tls, mechanism=mechanism, credentials=_credentials(user))


def _credentials(user: str | None) -> Credentials | None:
    from receiver.testkit.kit import Credentials

    if user is None:
        return None
    password = os.environ.get(PASSWORD_VARIABLE)
    if not password:
        raise typer.BadParameter(f"set the password in {PASSWORD_VARIABLE}", param_hint="--sasl-user")
    return Credentials(user, password)


def _address(text: str, option: str) -> HostPort:
    try:
        return HostPort.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text}: {error}", param_hint=option) from None


def _shown(context: ssl.SSLContext, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return the context, which shows a certificate."""
    if certificate is None or key is None:
        raise typer.BadParameter("give both --tls-certificate and --tls-key", param_hint="--tls-key")
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        problem = _pem_problem(error, "matching pair")
        raise typer.BadParameter(f"{certificate} and {key}: {problem}", param_hint="--tls-key") from None
    return context


def _pem_problem(error: OSError, what: str) -> str:
    is_ssl = isinstance(error, ssl.SSLError)
    return f"is no PEM file with a {what}" if is_ssl else error.strerror or str(error)


def _wanted(only: str | None) -> Callable[[str], bool]:
    if only is None:
        return lambda _: True
    try:
        pattern = compile_pattern(only)
    except ValueError as error:
        raise typer.BadParameter(
            f"{only}: is no regular expression (RE2): {error}", param_hint="--only"
        ) from None
    return lambda client_id: pattern.fullmatch(client_id.encode("utf-8", "replace")) is not None
