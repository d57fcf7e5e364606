"""One destination over HTTP: a kept-alive connection, a POST at a time, and the limits of what it may take.

Owns the client, the time and the size of an answer, and what it means that there is none. What an answer
means is for who posts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import httpx

from plugins.otlp.transport import USER_AGENT, Destination, tls_context, without_secrets
from receiver.plugin import PermanentError, RetryableError

__all__ = ["HttpClient"]

#: An answer is a few bytes or a line of text; what is longer isn't read.
_MAX_ANSWER_BYTES = 65_536


class HttpClient:
    """POSTs to one URL over HTTP/1.1. For one thread at a time.

    Args:
        config: The operator's settings of the destination.
        url: Where to.
        headers: What the protocol sets, in lower case; the operator's headers come on top.
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
        """Make the client, unless there is one; the first POST connects it.

        Raises:
            OSError: A TLS file is missing or wrong.
        """
        if self._client is not None:
            return
        self._client = httpx.Client(
            headers=self._headers,
            timeout=self._timeout_s,
            verify=tls_context(self._config) if self._url.startswith("https://") else True,
            # No proxy, no .netrc: what isn't in the configuration must not decide where telemetry goes.
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=60),
        )

    def post(self, content: bytes) -> tuple[httpx.Response, bytes]:
        """POST a body.

        Returns:
            The answer, whatever its status, and its body, cut where it is long.

        Raises:
            RetryableError: No answer, or none that can be understood, in time.
            PermanentError: The request cannot be sent as it is.
        """
        if self._client is None:
            raise RuntimeError("post before open")
        deadline = time.monotonic() + self._timeout_s
        try:
            with self._client.stream("POST", self._url, content=content) as response:
                return response, _read(response, deadline)
        except httpx.LocalProtocolError as error:
            raise PermanentError(self._reason(error)) from None
        except httpx.TransportError as error:
            # OTLP's specification says to try again; for remote write it is right too.
            raise RetryableError(self._reason(error)) from None

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _reason(self, error: Exception) -> str:
        return without_secrets(f"{type(error).__name__}: {error}", self._config)


def _read(response: httpx.Response, deadline: float) -> bytes:
    answer = b""
    for chunk in response.iter_raw():
        answer += chunk
        if len(answer) > _MAX_ANSWER_BYTES:
            break
        # The client's time-out is for each read; an answer byte by byte would never meet it.
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("the answer took too long")
    return answer[:_MAX_ANSWER_BYTES]
