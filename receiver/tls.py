"""TLS contexts made of PEM files, and made anew when the files change: of the listeners and of the REST API.

Owns what is spoken (versions, who has to show a certificate, SNI) and the rule for files that change: whoever
connects gets what is on disk, and where that can't be used, what was there before. A context is never
changed: what a connection began with, it keeps. A key that is encrypted is an error; nobody is asked for a
password. What a file holds never gets into an error or the log. It must not know who reads from a connection.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from receiver.log import RateLimitedLog
from receiver.settings.listeners import ClientAuth, TlsSettings, TlsVersion, UpstreamTlsSettings
from receiver.settings.rest import RestTlsSettings
from receiver.watch import Watch

__all__ = ["TlsContext", "TlsFilesError", "client_context", "server_context", "tls_problem"]

#: Makes of a context that is all the same for everybody what somebody needs.
_Prepare: TypeAlias = Callable[[ssl.SSLContext], None]

_VERSIONS: Final[dict[TlsVersion, ssl.TLSVersion]] = {
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
_VERIFY: Final[dict[ClientAuth, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

_log = structlog.get_logger("receiver.tls")


class TlsFilesError(Exception):
    """A file can't be used; the message names its key in the settings, the file and why.

    Attributes:
        setting: The key.
        problem: The file and why.
    """

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting = setting
        self.problem = problem


def tls_problem(error: ssl.SSLError) -> str:
    """Say in OpenSSL's words what is wrong, without a place in somebody's source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")


class TlsContext:
    """An SSL context that follows its files.

    Args:
        listener: The listener's name, or ``rest``; for the log.
        files: What it is made of.
        make: Makes it of the files as they are.
        certificates: Those of the files that hold a certificate of ours.
        clock: Monotonic seconds.

    Raises:
        TlsFilesError: A file can't be used.
    """

    def __init__(
        self,
        listener: str,
        files: Iterable[Path | None],
        make: Callable[[], ssl.SSLContext],
        certificates: Iterable[Path],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener = listener
        self._watch = Watch((file for file in files if file is not None), clock)
        self._make = make
        self._certificates = tuple(certificates)
        self._warnings = RateLimitedLog("receiver.tls")
        self._context = make()
        self._not_after = _not_after(self._certificates)

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection.

        Files that can't be used are logged, once in a while, and tried again.
        """
        if not self._watch.changed():
            return self._context
        try:
            self._context = self._make()
        except TlsFilesError as error:
            self._watch.remind()
            self._warnings.warning(
                "TLS files can't be used; the old ones stay", listener=self._listener, problem=str(error)
            )
        else:
            self._not_after = _not_after(self._certificates)
            _log.info("TLS files are re-read", listener=self._listener)
        return self._context

    def not_after(self) -> float | None:
        """Return when the certificate ends that a new connection is shown, in seconds since the epoch.

        Where there are several for different names, that is when the first of them does; None where there is
        none, or none whose end can be told.
        """
        self.current()
        return self._not_after


def _not_after(certificates: Sequence[Path]) -> float | None:
    if not certificates:
        return None
    # Here, as it takes 8 MiB and 0.3 s that who speaks no TLS need not pay.
    from cryptography.x509 import load_pem_x509_certificate

    ends = []
    for file in certificates:
        # What OpenSSL takes is in use, whatever else can be read of it.
        with contextlib.suppress(OSError, ValueError):
            ends.append(load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp())
    return min(ends, default=None)


def server_context(
    listener: str,
    settings: TlsSettings | RestTlsSettings,
    *,
    key: str,
    prepare: _Prepare = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> TlsContext:
    """Return the context for what clients open.

    Args:
        listener: The listener's name, or ``rest``; for the log.
        settings: Its files, and what is asked of clients.
        key: That of the settings.
        prepare: Called with each context before it is used.
        clock: Monotonic seconds.

    Raises:
        TlsFilesError: A file can't be used.
    """
    names = settings.server_names if isinstance(settings, TlsSettings) else ()
    files = [settings.certificate, settings.key, settings.client_ca]
    for name in names:
        files += [name.certificate, name.key]

    def context_of(certificate: Path, key_file: Path, keys: str) -> ssl.SSLContext:
        context = _context(ssl.PROTOCOL_TLS_SERVER, settings.min_version)
        prepare(context)
        _load_identity(context, certificate, key_file, keys)
        if settings.client_ca is not None:
            _load_authorities(context, settings.client_ca, f"{key}.client_ca")
        context.verify_mode = _VERIFY[settings.client_auth]
        if settings.client_auth != "none":
            # A session that is taken up again is not verified again, and its certificate may have ended.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
        return context

    def make() -> ssl.SSLContext:
        context = context_of(settings.certificate, settings.key, key)
        by_name = {
            one.name.lower(): context_of(one.certificate, one.key, f"{key}.server_names[]") for one in names
        }

        def choose(connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            asked = (name or "").lower()
            chosen = by_name.get(asked) or by_name.get("*." + asked.partition(".")[2])
            if chosen is not None:
                connection.context = chosen

        if by_name:
            context.sni_callback = choose
        return context

    certificates = [settings.certificate, *(name.certificate for name in names)]
    return TlsContext(listener, files, make, certificates, clock)


def client_context(
    listener: str, settings: UpstreamTlsSettings, *, key: str, prepare: _Prepare = lambda _: None
) -> TlsContext:
    """Return the context for what is opened to the broker; arguments and errors as above."""

    def make() -> ssl.SSLContext:
        context = _context(ssl.PROTOCOL_TLS_CLIENT, settings.min_version)
        prepare(context)
        context.check_hostname = settings.verify_hostname
        if settings.ca is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            _load_authorities(context, settings.ca, f"{key}.ca")
        if settings.certificate is not None and settings.key is not None:
            _load_identity(context, settings.certificate, settings.key, key)
        return context

    certificates = () if settings.certificate is None else (settings.certificate,)
    return TlsContext(listener, (settings.ca, settings.certificate, settings.key), make, certificates)


def _context(protocol: int, min_version: TlsVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = _VERSIONS[min_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # Java's trust stores trust whatever certificate is in them, not self-signed ones alone.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load_authorities(context: ssl.SSLContext, file: Path, key: str) -> None:
    try:
        context.load_verify_locations(file)
    except OSError as error:
        raise TlsFilesError(key, f"{file}: {_why(error, 'certificates')}") from None


def _load_identity(context: ssl.SSLContext, certificate: Path, key: Path, keys: str) -> None:
    # OpenSSL reads both files and doesn't say which of them is wrong.
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, f"{keys}.certificate")
    setting = f"{keys}.key"

    def refuse() -> str:
        raise TlsFilesError(
            setting, f"{key}: it is encrypted; write it without a password, readable by us alone"
        )

    try:
        key.open("rb").close()
        context.load_cert_chain(certificate, key, password=refuse)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsFilesError(setting, f"{key}: it is not the key of {certificate}") from None
        if "TOO_SMALL" in (error.reason or "") or "TOO_WEAK" in (error.reason or ""):
            raise TlsFilesError(f"{keys}.certificate", f"{certificate}: {tls_problem(error)}") from None
        raise TlsFilesError(setting, f"{key}: {_why(error, 'a private key')}") from None
    except OSError as error:
        raise TlsFilesError(setting, f"{key}: {_why(error, 'a private key')}") from None


def _why(error: OSError, what: str) -> str:
    if isinstance(error, ssl.SSLError):
        return f"expected {what} in PEM form ({tls_problem(error)})"
    return error.strerror or str(error)
