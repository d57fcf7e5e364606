"""Findings about TLS files: keys, chains, dates and host names.

It reads certificates, never a private key: :mod:`receiver.tls` loads those as the receiver does.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509 import (
    Certificate,
    DNSName,
    ExtensionNotFound,
    IPAddress,
    SubjectAlternativeName,
    load_der_x509_certificate,
    load_pem_x509_certificates,
)

from receiver.amounts import count_text
from receiver.doctor.findings import Area, Finding, failed, ok, warning
from receiver.settings.listeners import ListenerSettings, ServerTlsSettings, TlsSettings
from receiver.settings.model import ReceiverSettings
from receiver.tls import TlsFilesError, client_context, server_context
from spark_streaming.files import read_bounded

#: Days before a certificate's end from which on it is reported.
_RENEW_DAYS: Final = 30

_MAX_FILE_BYTES: Final = 4_194_304


def check_tls_files(settings: ReceiverSettings, ca: Path | None, now: datetime) -> list[Finding]:
    """Check every TLS file of a configuration.

    Args:
        ca: The authorities that clients trust; None: not known.
        now: The time, with a time zone.
    """
    findings: list[Finding] = []
    for index, listener in enumerate(settings.listeners):
        findings += _of_listener(listener, f"listeners[{index}]", ca, now)
    if settings.rest.tls is not None:
        findings += _of_server("rest", settings.rest.tls, "rest.tls", None, ca, now)
    return findings


def _of_listener(listener: ListenerSettings, key: str, ca: Path | None, now: datetime) -> Iterator[Finding]:
    if listener.tls is not None:
        host = None if listener.advertised is None else listener.advertised.host
        yield from _of_server(listener.name, listener.tls, f"{key}.tls", host, ca, now)
    upstream = listener.upstream_tls
    if upstream is None:
        return
    try:
        client_context(listener.name, upstream, key=f"{key}.upstream_tls")
    except TlsFilesError as error:
        yield failed(Area.TLS, "files", error.setting, error.problem, "correct the file or the setting")
        return
    if upstream.ca_file is not None:
        yield from _authorities(f"{key}.upstream_tls.ca_file", upstream.ca_file, now)
    if upstream.cert_file is not None:
        yield from _chain(f"{key}.upstream_tls.cert_file", upstream.cert_file, None, None, now)


def _of_server(
    name: str, tls: ServerTlsSettings, key: str, host: str | None, ca: Path | None, now: datetime
) -> Iterator[Finding]:
    try:
        server_context(name, tls, key=key)
    except TlsFilesError as error:
        yield failed(Area.TLS, "files", error.setting, error.problem, "correct the file or the setting")
        return
    yield from _chain(f"{key}.cert_file", tls.cert_file, host, ca, now)
    for index, served in enumerate(tls.server_names if isinstance(tls, TlsSettings) else ()):
        setting = f"{key}.server_names[{index}].cert_file"
        yield from _chain(setting, served.cert_file, served.name, ca, now)
    if tls.client_ca_file is not None:
        yield from _authorities(f"{key}.client_ca_file", tls.client_ca_file, now)


def _chain(setting: str, file: Path, host: str | None, ca: Path | None, now: datetime) -> Iterator[Finding]:
    chain = _certificates(file)
    if not chain:
        yield failed(Area.TLS, "files", setting, f"{file}: no certificate can be read", "give a PEM file")
        return
    leaf = chain[0]
    yield _dates(setting, chain, now)
    problem = _issuer_problem(chain, _certificates(ca) if ca is not None else None)
    if problem is not None:
        fix = "put the certificate first, and each certificate's issuer behind it"
        yield failed(Area.TLS, "chain", setting, problem, fix)
    else:
        ends = _name(chain[-1].issuer.rfc4514_string())
        yield ok(Area.TLS, "chain", setting, f"matches its key; {len(chain)} in the chain, issued by {ends}")
    if host is not None and not covers(leaf, host):
        names = ", ".join(_names(leaf)[:8]) or "none"
        yield failed(
            Area.TLS,
            "host_name",
            setting,
            f"clients connect to {host}, and the certificate has the names {names}",
            f"issue a certificate for {host}, or correct listeners[].advertised",
        )


def _authorities(setting: str, file: Path, now: datetime) -> Iterator[Finding]:
    certificates = _certificates(file)
    valid = [
        certificate
        for certificate in certificates
        if certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
    ]
    if certificates and not valid:
        yield failed(
            Area.TLS, "dates", setting, f"{file}: every certificate has expired", "give the CA's current one"
        )
    elif certificates:
        yield _dates(setting, [max(valid, key=lambda one: one.not_valid_after_utc)], now)


def _dates(setting: str, chain: Sequence[Certificate], now: datetime) -> Finding:
    first = min(chain, key=lambda one: one.not_valid_after_utc)
    starts = max(certificate.not_valid_before_utc for certificate in chain)
    ends = first.not_valid_after_utc
    days = (ends - now).days
    text = f"{ends:%Y-%m-%d %H:%M} UTC"
    if starts > now:
        seen = f"it is valid from {starts:%Y-%m-%d %H:%M} UTC on only"
        return failed(Area.TLS, "dates", setting, seen, "check this machine's clock, or renew it")
    if ends <= now:
        return failed(
            Area.TLS, "dates", setting, f"it expired on {text}", "renew it; changed files are read again"
        )
    if days < _RENEW_DAYS:
        seen = f"it expires in {count_text(days, 'day')}, on {text}"
        return warning(Area.TLS, "dates", setting, seen, "renew it; changed files are read again")
    return ok(Area.TLS, "dates", setting, f"valid until {text}")


def presented_finding(subject: str, certificate: bytes, now: datetime) -> Finding | None:
    """Return the finding on the dates of a certificate that a peer showed (DER)."""
    try:
        return _dates(subject, [load_der_x509_certificate(certificate)], now)
    except ValueError:
        return None  # TLS accepted it all the same


def _issuer_problem(chain: Sequence[Certificate], authorities: Sequence[Certificate] | None) -> str | None:
    """Return where a chain breaks; None if each certificate is issued by the next.

    Args:
        chain: The certificate and its intermediates.
        authorities: The authorities that must have issued the last one; None: any.
    """
    for number, (certificate, issuer) in enumerate(pairwise(chain), 1):
        if not _issued(certificate, issuer):
            return f"certificate {number} in the file was not issued by the one behind it"
    last = chain[-1]
    if authorities is None or any(authority == last or _issued(last, authority) for authority in authorities):
        return None
    issuer_name = _name(last.issuer.rfc4514_string())
    return f"none of the authorities that clients trust issued it; its issuer is {issuer_name}"


def _issued(certificate: Certificate, issuer: Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def covers(certificate: Certificate, host: str) -> bool:
    """Whether a certificate is for a host name or address (RFC 6125, section 6.4)."""
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return host in _names(certificate)
    wanted = host.lower().rstrip(".")
    parent = wanted.partition(".")[2]
    return any(name in {wanted, f"*.{parent}"} for name in map(str.lower, _names(certificate)))


def _names(certificate: Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except (ExtensionNotFound, ValueError):
        return []
    return [*names.get_values_for_type(DNSName), *map(str, names.get_values_for_type(IPAddress))]


def _certificates(file: Path) -> list[Certificate]:
    try:
        return load_pem_x509_certificates(read_bounded(file, _MAX_FILE_BYTES))
    except ValueError:  # also FileError
        return []


def _name(text: str) -> str:
    return text[:200]


def now_utc() -> datetime:
    """Return the time."""
    return datetime.now(UTC)
