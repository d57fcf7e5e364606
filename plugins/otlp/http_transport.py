"""OTLP over HTTP: one POST for each export."""

from __future__ import annotations

import gzip
from typing import Final

import httpx

from plugins._shared.answers import http_error, redirect_target
from plugins._shared.destination import redact
from plugins._shared.http_client import MAX_ANSWER_BYTES, HttpClient, retry_after_s
from plugins.otlp import status
from plugins.otlp.config import Endpoint, OtlpConfig
from receiver.plugin import ExportError, ExportResult, RetryableError

_PROTOBUF: Final = "application/x-protobuf"
_JSON: Final = "application/json"


class HttpTransport:
    """Exports over HTTP/1.1."""

    def __init__(self, config: OtlpConfig, endpoint: Endpoint) -> None:
        self._config = config
        self._gzip = config.compression == "gzip"
        encoding = {"content-encoding": "gzip"} if self._gzip else {}
        self._client = HttpClient(config, endpoint.url, {"content-type": _PROTOBUF, **encoding})

    def open(self) -> None:
        """Create the client; see :class:`plugins.otlp.balance.Transport`."""
        self._client.open()

    def export(self, body: bytes) -> ExportResult | None:
        """Send a request; see :class:`plugins.otlp.balance.Transport`."""
        # On real payloads, level 6 takes 2.5 times as long and saves a seventh.
        content = gzip.compress(body, compresslevel=4, mtime=0) if self._gzip else body
        response, answer = self._client.post(content)
        if response.is_success:
            return self._result(response, answer)
        raise self._export_error(response, answer)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _result(self, response: httpx.Response, answer: bytes) -> ExportResult | None:
        """Read a success, which only an answer of OTLP or an empty one proves.

        A login page, and the front page of another server, come with status 200 too.
        """
        content_type = _content_type(response)
        try:
            if not answer:
                return None
            if len(answer) >= MAX_ANSWER_BYTES and content_type in {_PROTOBUF, _JSON}:
                return ExportResult(message="the answer is larger than 4 MiB and was not read")
            if content_type == _PROTOBUF:
                return status.result(answer)
            if content_type == _JSON:
                return status.json_result(answer)
        except ValueError as error:
            problem = f"an unreadable answer ({error})"
        else:
            problem = f"an answer of the type {content_type or 'unknown'}"
        shown = "" if content_type == _PROTOBUF else f": {_text(answer)}"
        reason = f"HTTP {response.status_code} with {problem}, so this is no OTLP endpoint{shown}"
        raise RetryableError(redact(reason, self._config))

    def _export_error(self, response: httpx.Response, answer: bytes) -> ExportError:
        if response.is_redirect:
            text = redirect_target(response.headers.get("location"))
        elif _content_type(response) == _PROTOBUF:
            text = status.status_message(answer)
        else:
            text = _text(answer)
        reason = redact(f"HTTP {response.status_code}: {text}", self._config)
        return http_error(response.status_code, reason, retry_after_s(response))


def _content_type(response: httpx.Response) -> str:
    content_type: str = response.headers.get("content-type", "")
    return content_type.partition(";")[0].strip().lower()


def _text(answer: bytes) -> str:
    return answer[:200].decode(errors="replace")
