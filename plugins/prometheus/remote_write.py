"""Remote write: one POST for each request, and what its answer means.

Owns the headers and what answers mean. What is in a request is ``plugins.prometheus.messages``'s, and the
connection ``plugins._shared.http_client``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import cramjam
import httpx

from plugins._shared.destination import redact
from plugins._shared.http_client import HttpClient, parse_retry_after
from plugins.prometheus.config import RemoteWriteConfig
from plugins.prometheus.messages import Sample, encode_request
from receiver.plugin import BatchRefusedError, ExportResult, PermanentError, RetryableError

__all__ = ["RemoteWriter"]

_VERSION_HEADERS: Final = {
    "1.0": {"content-type": "application/x-protobuf", "x-prometheus-remote-write-version": "0.1.0"},
    "2.0": {
        "content-type": "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        "x-prometheus-remote-write-version": "2.0.0",
    },
}
_WRITTEN: Final = (
    "x-prometheus-remote-write-samples-written",
    "x-prometheus-remote-write-histograms-written",
)


class RemoteWriter:
    """Writes samples to one destination. For one thread at a time.

    Args:
        config: The operator's settings.
    """

    def __init__(self, config: RemoteWriteConfig) -> None:
        self._config = config
        headers = {"content-encoding": "snappy", **_VERSION_HEADERS[config.version]}
        self._client = HttpClient(config, config.url, headers)

    def open(self) -> None:
        """Make the client, unless there is one; the first request connects it.

        Raises:
            OSError: A TLS file is missing or wrong.
        """
        self._client.open()

    def write(self, samples: Sequence[Sample]) -> ExportResult | None:
        """Write samples in one request.

        Returns:
            None, or how many samples of it the destination did not take for good.

        Raises:
            RetryableError: The destination is slow or away: 5xx, 429, no answer.
            BatchRefusedError: It refuses the request for what is in it.
            PermanentError: It will take no such request.

        Source: Prometheus Remote-Write 2.0, "Response" and "Retries & Backoff".
        """
        content = bytes(cramjam.snappy.compress_raw(encode_request(samples, self._config.version)))
        response, answer = self._client.post(content)
        return self._meaning(response, answer, len(samples))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _meaning(self, response: httpx.Response, answer: bytes, sent: int) -> ExportResult | None:
        status = response.status_code
        said = answer[:200].decode(errors="replace").strip()
        reason = redact(f"HTTP {status}: {said}", self._config)
        written = _written(response.headers) if self._config.version == "2.0" else None
        if response.is_success:
            if self._config.version == "2.0" and written is None:
                # What 1.0 receivers do that don't look at the content type: they read an empty request.
                raise PermanentError(f"{reason} the destination knows no remote write 2.0: set version 1.0")
            missing = 0 if written is None else max(0, sent - written)
            return ExportResult(rejected_points=missing, message=reason) if missing else None
        if status == httpx.codes.TOO_MANY_REQUESTS or status >= httpx.codes.INTERNAL_SERVER_ERROR:
            after = parse_retry_after(response.headers.get("retry-after"), datetime.now(UTC))
            raise RetryableError(reason, retry_after_s=after)
        if status == httpx.codes.BAD_REQUEST and written:
            # It says which it has; none of the others would ever pass.
            return ExportResult(rejected_points=max(0, sent - written), message=reason)
        if status in (httpx.codes.BAD_REQUEST, httpx.codes.REQUEST_ENTITY_TOO_LARGE):
            raise BatchRefusedError(reason)
        raise PermanentError(reason)


def _written(headers: httpx.Headers) -> int | None:
    """How many samples the destination says it took; None where it says nothing of them."""
    counts = [headers[name] for name in _WRITTEN if name in headers]
    if not counts or not all(count.isascii() and count.isdigit() for count in counts):
        return None
    return sum(map(int, counts))
