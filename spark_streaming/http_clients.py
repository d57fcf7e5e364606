"""What HTTP clients share: the context without TLS, and errors in plain words.

The receiver uses it too. It lives here, because the roll-up is shipped without the receiver.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

import httpx

#: What an error means: the first class that fits.
_MEANINGS: Final = (
    (httpx.ConnectTimeout, "no connection"),
    (httpx.TimeoutException, "no answer"),
    (httpx.ConnectError, "cannot connect"),
    (httpx.RemoteProtocolError, "no valid HTTP answer"),
    (httpx.LocalProtocolError, "no valid HTTP request"),
)

#: What Python adds to the words of the system and of OpenSSL.
_OF_PYTHON: Final = re.compile(r"\[Errno -?\d+\] |\[SSL(?:: [A-Z_]+)?\] | \(_ssl\.c:\d+\)")


def no_tls() -> ssl.SSLContext:
    """Return an empty context for ``http://``.

    httpx's own would read the certificates of all authorities, which takes longer than a request.
    """
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def request_problem(error: Exception, timeout_s: float) -> str:
    """Return why a request failed: ``cannot connect: Connection refused``.

    Args:
        error: What the request raised: an ``httpx.HTTPError``, OSError or UnicodeError.
        timeout_s: How long it had.
    """
    meaning = next((words for kind, words in _MEANINGS if isinstance(error, kind)), "no connection")
    if isinstance(error, httpx.TimeoutException):
        return f"{meaning} within {timeout_s:g} s"
    said = plain_words(error)
    return f"{meaning}: {said}" if said else meaning


def plain_words(error: Exception) -> str:
    """Return an error's text as the system or OpenSSL has it."""
    return _OF_PYTHON.sub("", str(error))
