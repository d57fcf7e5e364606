"""The scrape endpoint of the roll-up's metrics."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from spark_streaming.metrics.rollup_metrics import RollupMetrics
from spark_streaming.scraping.server import ScrapeHandler, ScrapeServer
from spark_streaming.scraping.web import Web
from spark_streaming.scraping.web_config import WebConfigError

#: Maximum duration of a connection.
_MAX_SECONDS: Final = 30.0


class MetricsError(Exception):
    """The server can't listen, or its web configuration file is invalid.

    The message names the setting and the reason.
    """


class MetricsServer(ScrapeServer):
    """Serves scrapes until it is closed.

    Args:
        host: A name or an IP address without brackets.
        port: 0 lets the system choose.
        metrics: The source of the series.
        allowed_hosts: Names that a Host header may have, beside IP addresses, ``localhost`` and
            ``host``.
        web_config_file: TLS and logins.

    Attributes:
        port: The port that it listens on.

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
    ) -> None:
        self.metrics = metrics
        try:
            web = Web(web_config_file)
            super().__init__((host, port), _Handler, hosts=allowed_hosts, web=web, max_seconds=_MAX_SECONDS)
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Handler(ScrapeHandler):
    server: MetricsServer
    settings = "metrics."

    def answer(self) -> None:
        content_type, text = self.server.metrics.exposition(self.headers.get("accept", ""))
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
