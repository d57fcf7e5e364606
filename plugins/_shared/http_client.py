"""HTTP client for one destination, with bounds on time and answer size.

It maps transport errors to the plugin contract's errors. The caller interprets the answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from plugins._shared.destination import USER_AGENT, Destination, redact, tls_context
from receiver.plugin import RetryableError
from spark_streaming.http_clients import no_tls, request_problem

#: Longer answers are cut. A usual one is a few bytes or a line of text, but a partial success may
#: name each rejected series.
MAX_ANSWER_BYTES = 4_194_304
_SECONDS = re.compile(r"[0-9]{1,9}")


class HttpClient:
    """POSTs to one URL over HTTP/1.1. Not thread-safe.

    ``headers`` are the protocol's, in lower case. The operator's headers override them.
    """

    def __init__(self, config: Destination, url: str, headers: Mapping[str, str]) -> None:
        self._config = config
        self._url = url
        self._timeout_s = config.timeout_ms / 1000
        self._headers = {
            "user-agent": USER_AGENT,
            "accept-encoding": "identity",
            **headers,
            **{name: value.get_secret_value() for name, value in config.headers.items()},
        }
        self._client: httpx.Client | None = None

    def open(self) -> None:
        """Create the client if there is none. The first POST connects it."""
        if self._client is not None:
            return
        self._client = httpx.Client(
            headers=self._headers,
            timeout=self._timeout_s,
            verify=tls_context(self._config) if self._url.startswith("https://") else no_tls(),
            # No proxy and no .netrc: only the configuration decides where telemetry goes.
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=60),
        )

    def post(self, content: bytes) -> tuple[httpx.Response, bytes]:
        """POST a body; return the answer of any status, and its body cut to 4 MiB.

        Raises:
            RetryableError: No valid answer arrived in time, or there is no such host, or the
                operator's headers are not valid HTTP: an operator can correct all of it.
        """
        if self._client is None:
            raise RuntimeError("post before open")
        deadline = time.monotonic() + self._timeout_s
        try:
            with self._client.stream("POST", self._url, content=content) as response:
                return response, _read(response, deadline)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            # The OTLP specification asks for a retry. It is right for remote write too.
            # UnicodeError: the resolver's, for a host that is no host name.
            raise RetryableError(self._reason(error)) from None

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _reason(self, error: Exception) -> str:
        return redact(request_problem(error, self._timeout_s), self._config)


def _read(response: httpx.Response, deadline: float) -> bytes:
    answer = bytearray()
    for chunk in response.iter_raw():
        answer += chunk
        if len(answer) > MAX_ANSWER_BYTES:
            break
        # httpx applies its timeout to each read, so an answer sent byte by byte would never end.
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("the answer took too long")
    return bytes(answer[:MAX_ANSWER_BYTES])


def retry_after_s(response: httpx.Response) -> float | None:
    """Return the delay in seconds that an answer asks for; None if it has none."""
    return parse_retry_after(response.headers.get("retry-after"), datetime.now(UTC))


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Return the seconds of a ``Retry-After`` value; None if past or malformed.

    Its value is a number or a date (RFC 9110, section 10.2.3). ``now`` has a time zone.
    """
    if value is None:
        return None
    if _SECONDS.fullmatch(value.strip()):
        return float(value)
    try:
        when = parsedate_to_datetime(value)
        seconds = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()
    except (ValueError, OverflowError, TypeError):
        return None
    return seconds if seconds > 0 else None
