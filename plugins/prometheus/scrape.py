"""The scrape endpoint: the series in chunks."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator
from typing import Final

from spark_streaming.scraping.negotiation import accepts_coding, scrape_format
from spark_streaming.scraping.server import ScrapeHandler, ScrapeServer
from spark_streaming.scraping.web import Web

#: Maximum duration of a connection.
_MAX_SECONDS: Final = 60.0
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class PluginScrapeServer(ScrapeServer):
    """Serves scrapes until it is closed.

    ``exposition`` writes all series in chunks, as OpenMetrics if its argument is true. It is called
    on any thread. ``hosts`` are allowed host names, in addition to IP addresses, ``localhost`` and
    the host of ``address``. ``web`` has its TLS and logins.
    """

    def __init__(
        self,
        address: tuple[str, int],
        exposition: Callable[[bool], Iterator[bytes]],
        hosts: Collection[str],
        web: Web,
    ) -> None:
        self.exposition = exposition
        host, port = address
        try:
            super().__init__(address, _Handler, hosts=hosts, web=web, max_seconds=_MAX_SECONDS)
        except OSError as error:
            raise OSError(f"bind: cannot listen on {host}:{port}: {error.strerror or error}") from None
        self.start("prometheus-scrape")


class _Handler(ScrapeHandler):
    server: PluginScrapeServer
    # Chunks need 1.1. A truncated body without a length would look complete.
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        openmetrics = scrape_format(self.headers.get("accept", "")).startswith("application/openmetrics-text")
        chunked = self.request_version != "HTTP/1.0"
        self.send_response(200)
        # The requested version does not matter: scrapers of other versions read these too.
        self.send_header("content-type", _OPENMETRICS if openmetrics else _TEXT)
        chunks = self.server.exposition(openmetrics)
        if accepts_coding(self.headers.get("accept-encoding", ""), "gzip"):
            chunks = _compressed(chunks)
            self.send_header("content-encoding", "gzip")
        if chunked:
            self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        for chunk in chunks:
            if chunk:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")


def _compressed(chunks: Iterator[bytes]) -> Iterator[bytes]:
    # Level 2 takes half as long again and saves a few per cent.
    compressor = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()
