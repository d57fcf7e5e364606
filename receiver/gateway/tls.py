"""TLS contexts made of PEM files, and made anew when the files change.

Owns what is spoken (versions, who has to show a certificate, SNI) and the rule for files that change: whoever
connects gets what is on disk, and where that can't be used, what was there before. A key that is encrypted is
an error; nobody is asked for a password. What a file holds never gets into an error or the log.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog
from cryptography.x509 import load_pem_x509_certificate

from receiver.gateway.tls_socket import TlsSocket, tls_problem
from receiver.log import RateLimitedLog
from receiver.settings.listeners import ClientAuth, TlsSettings, TlsVersion, UpstreamTlsSettings

__all__ = ["TlsContext", "TlsFilesError", "client_context", "server_context"]

#: How often the files are looked at, in seconds; only while somebody connects.
_LOOK_EVERY_S: Final = 1.0

_VERSIONS: Final[dict[TlsVersion, ssl.TLSVersion]] = {
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
_VERIFY: Final[dict[ClientAuth, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

_log = structlog.get_logger("receiver.gateway")


class TlsFilesError(Exception):
    """A file can't be used; the message names its key in the settings, the file and why."""


class TlsContext:
    """An SSL context that follows its files.

    Args:
        listener: The listener's name, for the log.
        files: What it is made of.
        make: Makes it of the files as they are.
        certificates: Those of the files that hold a certificate of ours.

    Raises:
        TlsFilesError: A file can't be used.
    """

    def __init__(
        self,
        listener: str,
        files: Iterable[Path | None],
        make: Callable[[], ssl.SSLContext],
        certificates: Iterable[Path],
    ) -> None:
        self._listener = listener
        self._files = tuple(file for file in files if file is not None)
        self._make = make
        self._certificates = tuple(certificates)
        self._warnings = RateLimitedLog("receiver.gateway")
        self._looked_at = time.monotonic()
        self._state = self._state_of_files()
        self._context = make()
        self._not_after = _not_after(self._certificates)

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection.

        Files that can't be used are logged, once in a while, and tried again.
        """
        now = time.monotonic()
        if now - self._looked_at < _LOOK_EVERY_S:
            return self._context
        self._looked_at = now
        state = self._state_of_files()  # before they are read: what changes meanwhile is read again
        if state == self._state:
            return self._context
        try:
            self._context = self._make()
        except TlsFilesError as error:
            self._warnings.warning(
                "TLS files can't be used; the old ones stay", listener=self._listener, problem=str(error)
            )
        else:
            self._state = state
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

    def _state_of_files(self) -> list[tuple[int, int, int] | None]:
        return [_state(file) for file in self._files]


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _not_after(certificates: Iterable[Path]) -> float | None:
    ends = []
    for file in certificates:
        # What OpenSSL takes is in use, whatever else can be read of it.
        with contextlib.suppress(OSError, ValueError):
            ends.append(load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp())
    return min(ends, default=None)


def server_context(listener: str, settings: TlsSettings) -> TlsContext:
    """Return the context for what clients open.

    Raises:
        TlsFilesError: A file can't be used.
    """
    files = [settings.certificate, settings.key, settings.client_ca]
    for name in settings.server_names:
        files += [name.certificate, name.key]
    certificates = [settings.certificate, *(name.certificate for name in settings.server_names)]
    return TlsContext(listener, files, lambda: _server_context(settings), certificates)


def client_context(listener: str, settings: UpstreamTlsSettings) -> TlsContext:
    """Return the context for what is opened to the broker.

    Raises:
        TlsFilesError: A file can't be used.
    """
    files = (settings.ca, settings.certificate, settings.key)
    certificates = () if settings.certificate is None else (settings.certificate,)
    return TlsContext(listener, files, lambda: _client_context(settings), certificates)


def _server_context(settings: TlsSettings) -> ssl.SSLContext:
    def make(certificate: Path, key: Path, keys: str) -> ssl.SSLContext:
        context = _context(ssl.PROTOCOL_TLS_SERVER, settings.min_version)
        _load_identity(context, certificate, key, keys)
        if settings.client_ca is not None:
            _load_authorities(context, settings.client_ca, "listeners[].tls.client_ca")
        context.verify_mode = _VERIFY[settings.client_auth]
        if settings.client_auth != "none":
            # A session that is taken up again is not verified again, and its certificate may have ended.
            context.num_tickets = 0
        return context

    context = make(settings.certificate, settings.key, "listeners[].tls")
    by_name = {
        one.name.lower(): make(one.certificate, one.key, "listeners[].tls.server_names[]")
        for one in settings.server_names
    }

    def choose(connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        asked = (name or "").lower()
        chosen = by_name.get(asked) or by_name.get("*." + asked.partition(".")[2])
        if chosen is not None:
            connection.context = chosen

    if by_name:
        context.sni_callback = choose
    return context


def _client_context(settings: UpstreamTlsSettings) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings.min_version)
    context.check_hostname = settings.verify_hostname
    if settings.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_authorities(context, settings.ca, "listeners[].upstream_tls.ca")
    if settings.certificate is not None and settings.key is not None:
        _load_identity(context, settings.certificate, settings.key, "listeners[].upstream_tls")
    return context


def _context(protocol: int, min_version: TlsVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.sslsocket_class = TlsSocket
    context.minimum_version = _VERSIONS[min_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # So that an end without close_notify can be told from a reset; see receiver.gateway.tls_socket.
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    # Java's trust stores trust whatever certificate is in them, not self-signed ones alone.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load_authorities(context: ssl.SSLContext, file: Path, key: str) -> None:
    try:
        context.load_verify_locations(file)
    except OSError as error:
        raise TlsFilesError(f"{key}: {file}: {_why(error, 'certificates')}") from None


def _load_identity(context: ssl.SSLContext, certificate: Path, key: Path, keys: str) -> None:
    # OpenSSL reads both files and doesn't say which of them is wrong.
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, f"{keys}.certificate")
    named = f"{keys}.key: {key}"

    def refuse() -> str:
        raise TlsFilesError(f"{named}: it is encrypted; write it without a password, readable by us alone")

    try:
        key.open("rb").close()
        context.load_cert_chain(certificate, key, password=refuse)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsFilesError(f"{named}: it is not the key of {certificate}") from None
        if "TOO_SMALL" in (error.reason or "") or "TOO_WEAK" in (error.reason or ""):
            raise TlsFilesError(f"{keys}.certificate: {certificate}: {tls_problem(error)}") from None
        raise TlsFilesError(f"{named}: {_why(error, 'a private key')}") from None
    except OSError as error:
        raise TlsFilesError(f"{named}: {_why(error, 'a private key')}") from None


def _why(error: OSError, what: str) -> str:
    if isinstance(error, ssl.SSLError):
        return f"expected {what} in PEM form ({tls_problem(error)})"
    return error.strerror or str(error)
