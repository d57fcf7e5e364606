"""``doctor``: proves a setup before and after a restart."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from receiver.amounts import count_text
from receiver.cli.output import print_json, print_wrapped
from receiver.cli.session import TOKEN_VARIABLE, read_token
from receiver.settings.hostport import HostPort

if TYPE_CHECKING:
    from receiver.doctor import Finding, Report

_EXIT_NOT_PROVEN: Final = 1

_WIDTH: Final = len("warning")
_INDENT: Final = " " * (_WIDTH + 4)


def _pem_file(help_: str) -> Any:
    return typer.Option(help=help_, metavar="FILE", exists=True, dir_okay=False)


def doctor(
    config: Annotated[
        Path,
        typer.Option(
            "--config", "-c", envvar="KAFKA_TELEMETRY_CONFIG", help="The YAML file.", metavar="FILE"
        ),
    ],
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")] = False,
    problems_only: Annotated[
        bool, typer.Option("--problems-only", help="Leave out what is as it should be.")
    ] = False,
    before_start: Annotated[
        bool, typer.Option("--before-start", help="The receiver does not run yet: its ports must be free.")
    ] = False,
    client: Annotated[
        str | None,
        typer.Option(
            help="Prove that the client with this client id or client instance id pushes.", metavar="ID"
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="The receiver runs on this host, not on this machine.", metavar="HOST")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"File with a token for the REST API. Without it, the variable {TOKEN_VARIABLE} or a file "
            "of rest.tokens holds the token.",
            metavar="FILE",
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        _pem_file(
            "PEM file with the CA certificates that clients trust. Without it, listeners and the REST API "
            "must show the configured certificates."
        ),
    ] = None,
    client_certificate: Annotated[
        Path | None, _pem_file("PEM file with the certificate to show to listeners and the REST API.")
    ] = None,
    client_key: Annotated[Path | None, _pem_file("PEM file with its private key, not encrypted.")] = None,
) -> None:
    """Prove a setup: configuration, ports, TLS, brokers, plugins, clients.

    Each finding says what was seen and what to do. The exit status is 0 only if everything is
    proven: nothing failed, and nothing is unknown. Warnings leave it 0. It changes nothing, and
    takes some seconds. Run it as the receiver's user, in its working folder.

    \u0008
    Examples:
      kafka-telemetry doctor --config receiver.yaml --before-start
      kafka-telemetry doctor --config receiver.yaml
      kafka-telemetry doctor --config receiver.yaml --client orders-1
      kafka-telemetry doctor --config receiver.yaml --problems-only
      kafka-telemetry doctor --config receiver.yaml --json
    """
    # Imported here, because it imports the gateway and the other commands should start fast.
    from receiver.doctor import Access, Options, examine

    if (client_certificate is None) != (client_key is None):
        raise typer.BadParameter("give both --client-certificate and --client-key", param_hint="--client-key")
    if host is not None:
        try:
            host = HostPort.parse(f"{host}:1").host
        except ValueError as error:
            raise typer.BadParameter(f"{host}: {error}", param_hint="--host") from None
    access = Access(
        host=host, token=read_token(token_file), ca=ca_file, certificate=client_certificate, key=client_key
    )
    options = Options(before_start=before_start, client=client, access=access)
    report = asyncio.run(examine(config, os.environ, options))
    if json:
        print_json(report.document())
    else:
        _print(report, problems_only=problems_only)
    raise typer.Exit(0 if report.proven else _EXIT_NOT_PROVEN)


def _print(report: Report, *, problems_only: bool) -> None:
    findings = list(merged(report.findings))
    shown = [finding for finding in findings if finding.do or not problems_only]
    for area, of_area in itertools.groupby(shown, key=lambda finding: finding.area):
        typer.echo(f"{area}:")
        # What to do about several findings in a row is below the last one.
        for do, alike in itertools.groupby(of_area, key=lambda finding: finding.do):
            for finding in alike:
                _print_finding(finding)
            if do:
                print_wrapped(f"do: {do}", _INDENT)
    counted = Counter(finding.state for finding in findings)
    counts = ", ".join(
        count_text(counted[state], state) if state == "warning" else f"{counted[state]} {state}"
        for state in report.counts
        if counted[state]
    )
    typer.echo(f"{'proven' if report.proven else 'not proven'}: {counts}")


def merged(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Return the findings; a problem of several subjects is one, with their names."""
    found: dict[tuple[str, ...], dict[str, Finding]] = {}
    for finding in findings:
        same = (finding.area, finding.state, finding.seen, finding.do)
        key = same if finding.do else (*same, finding.subject)
        found.setdefault(key, {}).setdefault(finding.subject, finding)
    for by_subject in found.values():
        first, *_ = by_subject.values()
        yield replace(first, subject=", ".join(by_subject))


def _print_finding(finding: Finding) -> None:
    print_wrapped(f"{finding.subject}: {finding.seen}", f"  {finding.state:<{_WIDTH}}  ")
