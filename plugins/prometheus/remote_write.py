"""Sends remote write requests and maps the destination's answers to errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import cramjam
import httpx

from plugins._shared.answers import http_error, is_html, redirect_target
from plugins._shared.destination import redact
from plugins._shared.http_client import HttpClient, retry_after_s
from plugins.prometheus.config import RemoteWriteConfig
from plugins.prometheus.messages import Sample, encode_request
from receiver.plugin import ExportResult, RetryableError

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
_COUNT: Final = re.compile("[0-9]{1,18}")


class RemoteWriter:
    """Writes samples to one destination. Not thread-safe."""

    def __init__(self, config: RemoteWriteConfig) -> None:
        self._config = config
        headers = {"content-encoding": "snappy", **_VERSION_HEADERS[config.version]}
        self._client = HttpClient(config, config.url, headers)

    def open(self) -> None:
        """Create the client if there is none. The first request connects it."""
        self._client.open()

    def write(self, samples: Sequence[Sample]) -> ExportResult | None:
        """Write samples in one request; return how many the destination rejected, if any.

        Raises:
            RetryableError: The destination is slow or unavailable, or refuses all requests
                (:mod:`plugins._shared.answers`).
            UnclearError: It is not known whether the content is at fault.
            BatchRefusedError: The destination refuses the content.

        Source: Prometheus Remote-Write 2.0, "Response" and "Retries & Backoff".
        """
        content = bytes(cramjam.snappy.compress_raw(encode_request(samples, self._config.version)))
        response, answer = self._client.post(content)
        return self._result(response, answer, len(samples))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _result(self, response: httpx.Response, answer: bytes, sent: int) -> ExportResult | None:
        status = response.status_code
        text = answer[:200].decode(errors="replace").strip()
        reason = redact(f"HTTP {status}: {text}", self._config)
        written = _written(response.headers) if self._config.version == "2.0" else None
        if response.is_success:
            if is_html(response.headers.get("content-type", "")):
                raise RetryableError(f"{reason}: a page for people, so this is no remote write endpoint")
            if self._config.version == "2.0" and written is None:
                # A 1.0 destination that ignores the content type reads an empty request and answers
                # 2xx.
                raise RetryableError(
                    f"{reason} the destination does not support remote write 2.0: set version 1.0"
                )
            missing = 0 if written is None else max(0, sent - written)
            return ExportResult(rejected_points=missing, message=reason) if missing else None
        if status == httpx.codes.BAD_REQUEST and written:
            # It wrote a part. The others would always fail.
            return ExportResult(rejected_points=max(0, sent - written), message=reason)
        if response.is_redirect:
            reason = f"HTTP {status}: {redirect_target(response.headers.get('location'))}"
        raise http_error(status, reason, retry_after_s(response))


def _written(headers: httpx.Headers) -> int | None:
    """Return the number of written samples; None if the answer does not have it."""
    counts = [headers[name] for name in _WRITTEN if name in headers]
    if not counts or not all(map(_COUNT.fullmatch, counts)):
        return None
    return sum(map(int, counts))
