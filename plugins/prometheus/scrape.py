"""The scrape endpoint: GET /metrics, on threads of its own.

Owns the socket, the bounds on connections (how many, and for how long each), and which host names a scrape
may use. It must not know what is written there.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import socketserver
import threading
import zlib
from collections.abc import Callable, Collection, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client.exposition import choose_encoder

__all__ = ["ScrapeServer"]

#: Further connections are closed at once.
_MAX_CONNECTIONS = 8
#: After so long a connection is closed, whatever it is doing.
_MAX_SECONDS = 60.0
_PATH = "/metrics"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class ScrapeServer:
    """Answers scrapes until it is closed.

    Args:
        address: Where to listen.
        exposition: Writes what there is, as OpenMetrics or as text, in chunks; called on any thread.
        hosts: Host names that a scrape may use beside IP addresses, ``localhost`` and the one of ``address``.
    """

    def __init__(
        self,
        address: tuple[str, int],
        exposition: Callable[[bool], Iterator[bytes]],
        hosts: Collection[str] = (),
    ) -> None:
        self._server = _Server(address, exposition, frozenset({"localhost", address[0].lower(), *hosts}))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="prometheus-scrape", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening; scrapes that run are left to their time."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        address: tuple[str, int],
        exposition: Callable[[bool], Iterator[bytes]],
        hosts: frozenset[str],
    ) -> None:
        self.exposition = exposition
        self.hosts = hosts
        self._free = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        host, port = address
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            raise OSError(f"bind: cannot listen on {host}:{port}: {error.strerror or error}") from None

    def server_bind(self) -> None:
        # HTTPServer's own looks up the host's name, for which it may wait on DNS.
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # The socket's own time-out is for each read: a byte now and then would never meet it.
        deadline = threading.Timer(_MAX_SECONDS, _shut, [request])
        deadline.daemon = True
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever scrapes may go at any time; that is no fault of ours."""


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "kafka-client-telemetry"
    sys_version = ""
    # Chunks need 1.1. A text without a length that ends early would look like a whole one.
    protocol_version = "HTTP/1.1"
    timeout = 10.0

    def do_GET(self) -> None:
        self.close_connection = True
        if not _is_allowed(self.headers.get_all("host", []), self.server.hosts):
            # A web page whose own name resolves to this address could read what its reader can reach.
            self.send_error(421, "the Host header has another name: add it to allowed_hosts")
            return
        if self.path.partition("?")[0] != _PATH:
            self.send_error(404, f"there is only {_PATH}")
            return
        chosen = choose_encoder(self.headers.get("accept", ""))[1]
        openmetrics = chosen.startswith("application/openmetrics-text")
        chunked = self.request_version != "HTTP/1.0"
        self.send_response(200)
        # Which versions were asked for does not matter: who reads others reads these too.
        self.send_header("content-type", _OPENMETRICS if openmetrics else _TEXT)
        chunks = self.server.exposition(openmetrics)
        if "gzip" in self.headers.get("accept-encoding", ""):
            chunks = _compressed(chunks)
            self.send_header("content-encoding", "gzip")
        if chunked:
            self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        self.end_headers()
        for chunk in chunks:
            if chunk:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # http.server's own name
        """Say nothing: who scrapes is not logged."""


def _compressed(chunks: Iterator[bytes]) -> Iterator[bytes]:
    # A level higher takes half as long again for a few per cent.
    compressor = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _is_allowed(headers: list[str], hosts: frozenset[str]) -> bool:
    """Whether the one Host header, which HTTP/1.0 may lack, names this server.

    An IP address does: a page from another address is another origin to a browser.
    """
    if not headers:
        return True
    name = re.sub(r":[0-9]*$", "", headers[0].strip()).lower()
    if len(headers) > 1:
        return False
    if name in hosts:
        return True
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        return True
    return False
