"""TLS contexts from PEM files, re-read when the files change.

Owns the TLS versions, the demand for client certificates, SNI, and the rule for changed files: a
new connection gets the files on disk, or the former ones if those can't be used. A context is never
changed, so a connection keeps the one it began with. An encrypted key is an error, because nobody
could enter a password. The content of a file never appears in an error or the log.
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
from receiver.settings.listeners import (
    ClientAuth,
    ServerTlsSettings,
    TlsSettings,
    TlsVersion,
    UpstreamTlsSettings,
)
from receiver.watch import Watch

#: Adapts a new context to its use.
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
    """A file can't be used; the message has the key, the file and the reason.

    Attributes:
        problem: The file and the reason.
    """

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting = setting
        self.problem = problem


def tls_problem(error: ssl.SSLError) -> str:
    """Describe an error in OpenSSL's words, without its source location."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")


class ServerConnection(ssl.SSLObject):
    """Our side of a client's TLS connection."""

    asked_name: str = ""
    """The host name that the client asked for (SNI), in lower case; empty: none."""


class TlsContext:
    """An SSL context that follows its files.

    Args:
        listener: The listener's name, ``rest`` or ``bridge``; for the log.
        certificates: The files with a certificate of ours.
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

        If changed files can't be used, it logs that at a limited rate and tries again.
        """
        if not self._watch.changed():
            return self._context
        try:
            self._context = self._make()
        except TlsFilesError as error:
            self._watch.remind()
            self._warnings.warning(
                "TLS files can't be used, the old ones stay",
                once=f"TLS {self._listener}",
                listener=self._listener,
                problem=str(error),
            )
        else:
            self._not_after = _not_after(self._certificates)
            _log.info("TLS files re-read", once=f"TLS {self._listener}", listener=self._listener)
        return self._context

    def not_after(self) -> float | None:
        """Return the expiry of the certificate in seconds since the epoch.

        With several certificates (SNI) it is the earliest expiry. None without a certificate, or if
        none can be parsed.
        """
        self.current()
        return self._not_after


def _not_after(certificates: Sequence[Path]) -> float | None:
    if not certificates:
        return None
    # Imported here, because it takes 8 MiB and 0.3 s, which a receiver without TLS need not pay.
    from cryptography.x509 import load_pem_x509_certificate

    expiries = []
    for file in certificates:
        # OpenSSL accepted the certificate, so it is in use even if this library can't parse it.
        with contextlib.suppress(OSError, ValueError):
            expiries.append(load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp())
    return min(expiries, default=None)


def server_context(
    listener: str,
    settings: ServerTlsSettings,
    *,
    key: str,
    prepare: _Prepare = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> TlsContext:
    """Return the context for connections from clients.

    Args:
        listener: The listener's name, or ``rest``; for the log.
        prepare: Called with each context before it is used.
        clock: Monotonic seconds.

    Raises:
        TlsFilesError: A file can't be used.
    """
    names = settings.server_names if isinstance(settings, TlsSettings) else ()
    files = [settings.cert_file, settings.key_file, settings.client_ca_file]
    for name in names:
        files += [name.cert_file, name.key_file]

    def make_one(certificate: Path, key_file: Path, keys: str) -> ssl.SSLContext:
        context = _context(ssl.PROTOCOL_TLS_SERVER, settings.min_version)
        prepare(context)
        _load_identity(context, certificate, key_file, keys)
        if settings.client_ca_file is not None:
            _load_authorities(context, settings.client_ca_file, f"{key}.client_ca_file")
        context.verify_mode = _VERIFY[settings.client_auth]
        if settings.client_auth != "none":
            # A resumed session is not verified again, but its certificate may have expired.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
        return context

    def make() -> ssl.SSLContext:
        context = make_one(settings.cert_file, settings.key_file, key)
        by_name = {
            pattern.name.lower(): make_one(pattern.cert_file, pattern.key_file, f"{key}.server_names[]")
            for pattern in names
        }

        def choose(connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            server_name = (name or "").lower()
            if isinstance(connection, ServerConnection):
                connection.asked_name = server_name
            chosen = by_name.get(server_name) or by_name.get("*." + server_name.partition(".")[2])
            if chosen is not None:
                connection.context = chosen

        context.sslobject_class = ServerConnection
        context.sni_callback = choose
        return context

    certificates = [settings.cert_file, *(name.cert_file for name in names)]
    return TlsContext(listener, files, make, certificates, clock)


def client_context(
    listener: str, settings: UpstreamTlsSettings, *, key: str, prepare: _Prepare = lambda _: None
) -> TlsContext:
    """Return the context for connections to the broker; arguments as above."""

    def make() -> ssl.SSLContext:
        context = _context(ssl.PROTOCOL_TLS_CLIENT, settings.min_version)
        prepare(context)
        context.check_hostname = settings.verify_hostname
        if settings.ca_file is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            _load_authorities(context, settings.ca_file, f"{key}.ca_file")
        if settings.cert_file is not None and settings.key_file is not None:
            _load_identity(context, settings.cert_file, settings.key_file, key)
        return context

    certificates = () if settings.cert_file is None else (settings.cert_file,)
    return TlsContext(listener, (settings.ca_file, settings.cert_file, settings.key_file), make, certificates)


def _context(protocol: int, min_version: TlsVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = _VERSIONS[min_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # Java's trust stores trust any certificate in them, not only self-signed ones.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load_authorities(context: ssl.SSLContext, file: Path, key: str) -> None:
    try:
        context.load_verify_locations(file)
    except OSError as error:
        raise TlsFilesError(key, f"{file}: {_reason(error, 'certificates')}") from None


def _load_identity(context: ssl.SSLContext, certificate: Path, key: Path, keys: str) -> None:
    # Check the certificate first, because OpenSSL does not say which of the two files is wrong.
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, f"{keys}.cert_file")
    setting = f"{keys}.key_file"

    def refuse() -> str:
        raise TlsFilesError(
            setting, f"{key}: the key is encrypted; store it without a password, readable by us alone"
        )

    try:
        key.open("rb").close()
        context.load_cert_chain(certificate, key, password=refuse)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsFilesError(setting, f"{key}: this is not the key of {certificate}") from None
        if "TOO_SMALL" in (error.reason or "") or "TOO_WEAK" in (error.reason or ""):
            raise TlsFilesError(f"{keys}.cert_file", f"{certificate}: {tls_problem(error)}") from None
        raise TlsFilesError(setting, f"{key}: {_reason(error, 'a private key')}") from None
    except OSError as error:
        raise TlsFilesError(setting, f"{key}: {_reason(error, 'a private key')}") from None


def _reason(error: OSError, expected: str) -> str:
    if isinstance(error, ssl.SSLError):
        return f"expected {expected} in PEM form ({tls_problem(error)})"
    return error.strerror or str(error)
