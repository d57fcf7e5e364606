"""The scrape endpoint: TLS, logins, and the series in chunks."""

from __future__ import annotations

import socket
import ssl
import zlib
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from plugins.prometheus.web import Web
from spark_streaming.scraping.negotiation import accepts_coding, scrape_format
from spark_streaming.scraping.server import ScrapeHandler, ScrapeServer

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
        self.web = web
        host, port = address
        try:
            super().__init__(address, _Handler, hosts=hosts, max_seconds=_MAX_SECONDS)
        except OSError as error:
            raise OSError(f"bind: cannot listen on {host}:{port}: {error.strerror or error}") from None
        self.start("prometheus-scrape")

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection, perhaps with TLS."""
        connection, source = super().get_request()
        context = self.web.tls()
        if context is None:
            return connection, source
        # Without the handshake, for which the other connections would wait.
        connection.settimeout(_Handler.timeout)
        try:
            return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), source
        except OSError:
            connection.close()
            raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Make the TLS handshake, and answer."""
        if isinstance(request, ssl.SSLSocket):
            request.do_handshake()
        super().finish_request(request, client_address)


class _Handler(ScrapeHandler):
    server: PluginScrapeServer
    hosts_setting = "allowed_hosts"
    # Chunks need 1.1. A truncated body without a length would look complete.
    protocol_version = "HTTP/1.1"

    def refuse(self) -> bool:
        if self.server.web.allows(self.headers.get("authorization")):
            return False
        body = b"a login is needed: basic_auth_users of web_config_file\n"
        self.send_response(401)
        self.send_header("www-authenticate", 'Basic realm="metrics", charset="UTF-8"')
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        return True

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
