"""OTLP over HTTP: one kept-alive connection, one POST for each export.

Owns the client and the limits of what it reads. What a status means is told by ``plugins.otlp.status``.
"""

from __future__ import annotations

import gzip
import time
from datetime import UTC, datetime

import httpx

from plugins.otlp import status
from plugins.otlp.config import Endpoint, OtlpConfig
from plugins.otlp.transport import USER_AGENT, tls_context, without_secrets
from receiver.plugin import ExportError, ExportResult, PermanentError, RetryableError

__all__ = ["HttpTransport"]

_PROTOBUF = "application/x-protobuf"
#: An answer is a few bytes; what is longer isn't read.
_MAX_ANSWER_BYTES = 65_536


class HttpTransport:
    """Exports over HTTP/1.1.

    Args:
        config: The plugin's settings, with ``protocol: http``.
        endpoint: Where to.
    """

    def __init__(self, config: OtlpConfig, endpoint: Endpoint) -> None:
        self._config = config
        self._endpoint = endpoint
        self._timeout_s = config.timeout_ms / 1000
        self._gzip = config.compression == "gzip"
        self._headers = {
            "user-agent": USER_AGENT,
            "content-type": _PROTOBUF,
            "accept-encoding": "identity",
            **({"content-encoding": "gzip"} if self._gzip else {}),
            **{name: value.get_secret_value() for name, value in config.headers.items()},
        }
        self._client: httpx.Client | None = None

    def open(self) -> None:
        """Make the client; the first export connects it.

        Raises:
            OSError: A TLS file is missing or wrong.
        """
        self._client = httpx.Client(
            headers=self._headers,
            timeout=self._timeout_s,
            verify=tls_context(self._config) if self._endpoint.secure else True,
            # No proxy, no .netrc: what isn't in the configuration must not decide where telemetry goes.
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=60),
        )

    def export(self, body: bytes) -> ExportResult | None:
        """Send an ``ExportMetricsServiceRequest``; see :class:`plugins.otlp.transport.Transport`."""
        if self._client is None:
            raise RuntimeError("export before open")
        # On clients' real payloads level 6 takes 2.5 times as long for a seventh less.
        content = gzip.compress(body, compresslevel=4, mtime=0) if self._gzip else body
        deadline = time.monotonic() + self._timeout_s
        try:
            with self._client.stream("POST", self._endpoint.url, content=content) as response:
                answer = self._read(response, deadline)
        except httpx.LocalProtocolError as error:
            raise PermanentError(self._reason(error)) from None
        except httpx.TransportError as error:
            # No answer, or none that can be understood: the specification says to try again.
            raise RetryableError(self._reason(error)) from None
        if response.is_success:
            return status.result(answer) if self._is_protobuf(response) else None
        raise self._meaning(response, answer)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _read(self, response: httpx.Response, deadline: float) -> bytes:
        answer = b""
        for chunk in response.iter_raw():
            answer += chunk
            if len(answer) > _MAX_ANSWER_BYTES:
                break
            # The client's time-out is for each read; an answer byte by byte would never meet it.
            if time.monotonic() > deadline:
                raise httpx.ReadTimeout("the answer took too long")
        return answer[:_MAX_ANSWER_BYTES]

    def _meaning(self, response: httpx.Response, answer: bytes) -> ExportError:
        if self._is_protobuf(response):
            said = status.status_message(answer)
        else:
            said = answer[:200].decode(errors="replace")
        reason = without_secrets(f"HTTP {response.status_code}: {said}", self._config)
        after = status.http_retry_after_s(response.headers.get("retry-after"), datetime.now(UTC))
        return status.http_error(response.status_code, reason, after)

    def _reason(self, error: Exception) -> str:
        return without_secrets(f"{type(error).__name__}: {error}", self._config)

    @staticmethod
    def _is_protobuf(response: httpx.Response) -> bool:
        content_type: str = response.headers.get("content-type", "")
        return content_type.partition(";")[0].strip().lower() == _PROTOBUF
