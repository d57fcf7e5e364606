"""TLS contexts from PEM files, rebuilt when the files change, for listeners and the REST API.

A new connection uses the files on disk or, if they cannot be used, the last good ones. A context is
never changed, so an open connection keeps the context that it began with. An encrypted key is an
error, because there is nobody to ask for a password. No error and no log line shows the content of
a file.
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
    """A file cannot be used.

    Attributes:
        setting: The key of the setting.
        problem: The file and the reason.
    """

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting = setting
        self.problem = problem


def tls_problem(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")


class TlsContext:
    """An SSL context that is rebuilt when its files change.

    Args:
        listener: The listener's name, or ``rest``, for the log.
        files: The files of the context.
        make: Builds the context from the files.
        certificates: The files among them that hold an own certificate.
        clock: Monotonic time in seconds.

    Raises:
        TlsFilesError: A file cannot be used.
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

        Files that cannot be used are logged at a limited rate and tried again.
        """
        if not self._watch.changed():
            return self._context
        try:
            self._context = self._make()
        except TlsFilesError as error:
            self._watch.remind()
            self._warnings.warning(
                "TLS files unusable, old ones kept", listener=self._listener, problem=str(error)
            )
        else:
            self._not_after = _not_after(self._certificates)
            _log.info("TLS files reloaded", listener=self._listener)
        return self._context

    def not_after(self) -> float | None:
        """Return the end of the own certificate's validity, in seconds since the epoch.

        With several certificates it is the earliest end. None without a certificate, or if no end
        can be read.
        """
        self.current()
        return self._not_after


def _not_after(certificates: Sequence[Path]) -> float | None:
    if not certificates:
        return None
    # Imported here, because it takes 8 MiB and 0.3 s, which a receiver without TLS should not pay.
    from cryptography.x509 import load_pem_x509_certificate

    ends = []
    for file in certificates:
        # OpenSSL has accepted the file, so an error here is not one of the file.
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
    """Return the context for connections from clients.

    Args:
        listener: The listener's name, or ``rest``, for the log.
        settings: The files and the requirements for clients.
        key: The key of the settings, for errors.
        prepare: Called with each new context.
        clock: Monotonic time in seconds.

    Raises:
        TlsFilesError: A file cannot be used.
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
            # A resumed session is not verified again, although its certificate may have expired.
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
    """Return the context for connections to the broker, as :func:`server_context`."""

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
    # As Java, trust every certificate in the CA file, not only self-signed ones.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load_authorities(context: ssl.SSLContext, file: Path, key: str) -> None:
    try:
        context.load_verify_locations(file)
    except OSError as error:
        raise TlsFilesError(key, f"{file}: {_why(error, 'certificates')}") from None


def _load_identity(context: ssl.SSLContext, certificate: Path, key: Path, keys: str) -> None:
    # OpenSSL reads both files and does not tell which one is wrong, so the certificate is read
    # first.
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, f"{keys}.certificate")
    setting = f"{keys}.key"

    def refuse() -> str:
        raise TlsFilesError(
            setting, f"{key}: it is encrypted; write it without a password, readable for the receiver only"
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
