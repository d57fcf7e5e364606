"""TLS of the REST API, with files that may change while it runs.

Owns the TLS context that the next connection gets. A context is never changed: what a connection began with,
it keeps, and a certification authority that is taken out of the file is out.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from receiver.api.errors import ServerError
from receiver.api.watch import Watch
from receiver.log import RateLimitedLog
from receiver.settings.rest import RestTlsSettings

__all__ = ["TlsContext"]

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class TlsContext:
    """The TLS context of the files as they are.

    Args:
        settings: Which files, and what is asked of clients.
        clock: Monotonic seconds.

    Raises:
        ServerError: A file can't be used.
    """

    def __init__(self, settings: RestTlsSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._log = RateLimitedLog("receiver.api")
        files = (settings.certificate, settings.key, settings.client_ca)
        self._watch = Watch((file for file in files if file is not None), clock)
        self._context = _context(settings)

    def current(self) -> ssl.SSLContext:
        """The context for a new connection: of the files, or as it was while they can't be used."""
        if self._watch.changed():
            try:
                self._context = _context(self._settings)
            except ServerError as error:
                self._log.warning("the TLS files of the REST API can't be used", problem=str(error))
        return self._context


def _context(settings: RestTlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        # Without a password OpenSSL would ask for one on the terminal, and wait.
        context.load_cert_chain(settings.certificate, settings.key, password="")
    except (OSError, ValueError) as error:
        raise ServerError("rest.tls", _problem(error, settings.certificate, settings.key)) from None
    if settings.client_ca is not None:
        try:
            context.load_verify_locations(settings.client_ca)
        except OSError as error:
            raise ServerError("rest.tls.client_ca", _problem(error, settings.client_ca)) from None
    context.verify_mode = _VERIFY[settings.client_auth]
    if settings.client_auth != "none":
        # A session that is taken up again is not verified again, and its certificate may have ended.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context


def _problem(error: Exception, *files: Path) -> str:
    named = " and ".join(str(file) for file in files)
    if isinstance(error, ssl.SSLError):
        fix = "expected PEM, a key that is not encrypted, and that of the certificate"
        return f"{named}: {error.reason or error}; {fix if len(files) > 1 else 'expected PEM certificates'}"
    for file in files:
        if not file.is_file():
            return f"{file}: No such file"
    return f"{named}: {error.strerror if isinstance(error, OSError) else error}"
