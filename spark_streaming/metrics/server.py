"""The endpoint of the roll-up: its metrics, and the findings."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from spark_streaming.files import FileError
from spark_streaming.findings.answers import FilterError, FindingFilter
from spark_streaming.findings.queries import filter_of_query
from spark_streaming.metrics.rollup_metrics import RollupMetrics
from spark_streaming.scraping.server import METRICS_PATH, ScrapeHandler, ScrapeServer
from spark_streaming.scraping.token_files import TokenFiles
from spark_streaming.scraping.web import Web
from spark_streaming.scraping.web_config import WebConfigError

#: Maximum duration of a connection.
_MAX_SECONDS: Final = 30.0
FINDINGS_PATH: Final = "/v1/findings"
_JSON: Final = "application/json; charset=utf-8"
_PROBLEM: Final = "application/problem+json; charset=utf-8"

#: Answers a filter, or raises FindingsUnavailableError.
Findings = Callable[[FindingFilter], list[dict[str, Any]]]


class FindingsUnavailableError(Exception):
    """The findings can't be read now. The message has the reason."""


class MetricsError(Exception):
    """The server can't listen, or its web configuration file is invalid.

    The message names the setting and the reason.
    """


class MetricsServer(ScrapeServer):
    """Serves scrapes until it is closed.

    Args:
        host: A name or an IP address without brackets.
        port: 0 lets the system choose.
        allowed_hosts: Names that a Host header may have, beside IP addresses, ``localhost`` and
            ``host``.
        token_files: Files with the bearer tokens that may read findings.

    Attributes:
        port: The port that it listens on.
        findings: Answers ``GET /v1/findings``; None: not yet.

    Raises:
        MetricsError: It can't listen on the address, or the web configuration file is invalid.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: RollupMetrics,
        *,
        allowed_hosts: Collection[str] = (),
        web_config_file: Path | None = None,
        token_files: Sequence[Path] = (),
    ) -> None:
        self.metrics = metrics
        self.findings: Findings | None = None
        try:
            self.tokens = TokenFiles(token_files)
            web = Web(web_config_file)
            super().__init__((host, port), _Handler, hosts=allowed_hosts, web=web, max_seconds=_MAX_SECONDS)
        except FileError as error:
            raise MetricsError(f"metrics.token_files: {error}") from None
        except WebConfigError as error:
            raise MetricsError(f"metrics.web_config_file: {error}") from None
        except OSError as error:
            raise MetricsError(
                f"metrics.bind: cannot listen on {host}:{port}: {error.strerror or error}; "
                "give an address of this machine and a free port"
            ) from None
        self.port = int(self.server_address[1])
        self.start("metrics")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Handler(ScrapeHandler):
    server: MetricsServer
    settings = "metrics."
    paths = (METRICS_PATH, FINDINGS_PATH)

    def allows(self, path: str, authorization: str | None) -> bool:
        """Return whether a request may read a path. Findings name clients and principals."""
        if path != FINDINGS_PATH:
            return super().allows(path, authorization)
        tokens, web = self.server.tokens, self.server.web
        if tokens.allows(authorization):
            return True
        if web.has_users:
            return web.allows(authorization)
        return not tokens and ipaddress.ip_address(self.client_address[0]).is_loopback

    def ask_for_login(self, path: str) -> None:
        """Answer a request that may not read its path."""
        if path != FINDINGS_PATH:
            super().ask_for_login(path)
            return
        self._problem(
            401,
            "findings need a token of metrics.token_files as `Authorization: Bearer TOKEN`, or a login of "
            "metrics.web_config_file; without both, only this machine may read them",
        )

    def answer(self) -> None:
        path, _, query = self.path.partition("?")
        if path == METRICS_PATH:
            self._write(200, *self.server.metrics.exposition(self.headers.get("accept", "")))
            return
        findings = self.server.findings
        if findings is None:
            self._problem(503, "the roll-up starts: try again")
            return
        try:
            found = findings(filter_of_query(query, datetime.now(UTC)))
        except FilterError as error:
            self._problem(400, str(error))
        except FindingsUnavailableError as error:
            self._problem(503, str(error))
        else:
            self._write(200, _JSON, json.dumps({"findings": found}).encode())

    def _problem(self, status: int, detail: str) -> None:
        self._write(status, _PROBLEM, json.dumps({"status": status, "detail": detail}).encode())

    def _write(self, status: int, content_type: str, text: bytes) -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("www-authenticate", "Bearer")
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
