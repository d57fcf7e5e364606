"""HTTP server of the scrape endpoint, GET /metrics, on its own threads.

It bounds the number and duration of connections and checks the Host header.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import socketserver
import ssl
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from plugins.prometheus.web import Web
from receiver.negotiation import accepts_coding, scrape_format

#: Bound on open connections.
_MAX_CONNECTIONS = 8
#: Maximum duration of a connection.
_MAX_SECONDS = 60.0
_PATH = "/metrics"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class ScrapeServer:
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
        names = frozenset({"localhost", address[0].lower(), *hosts})
        self._server = _Server(address, exposition, names, web)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="prometheus-scrape", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Running scrapes may finish within their time limit."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Slots:
    """The open connections. At the bound one makes room for a new one.

    It is one of the source that has most, and of these one without a request before others, the
    oldest first. So clients that are slow, and sources with many connections, shut out nobody.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[socket.socket, str] = {}  # oldest first
        self._asking: set[socket.socket] = set()

    def take(self, connection: socket.socket, source: str) -> None:
        """Count a new connection; close another one if there are too many."""
        with self._lock:
            if len(self._sources) >= _MAX_CONNECTIONS:
                of_source = Counter(self._sources.values())
                most = max(of_source.values())
                victims = [kept for kept, name in self._sources.items() if of_source[name] == most]
                victim = next((kept for kept in victims if kept not in self._asking), victims[0])
                self._forget(victim)
                _shut(victim)
            self._sources[connection] = source

    def asked(self, connection: socket.socket) -> None:
        """Note that a connection's request has arrived."""
        with self._lock:
            if connection in self._sources:
                self._asking.add(connection)

    def release(self, connection: socket.socket) -> None:
        """Stop counting a connection."""
        with self._lock:
            self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        self._sources.pop(connection, None)
        self._asking.discard(connection)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        address: tuple[str, int],
        exposition: Callable[[bool], Iterator[bytes]],
        hosts: frozenset[str],
        web: Web,
    ) -> None:
        self.exposition = exposition
        self.hosts = hosts
        self.web = web
        self.slots = _Slots()
        host, port = address
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            raise OSError(f"bind: cannot listen on {host}:{port}: {error.strerror or error}") from None

    def server_bind(self) -> None:
        # HTTPServer's own method looks up the host's name, which may block on DNS.
        socketserver.TCPServer.server_bind(self)

    def get_request(self) -> tuple[socket.socket, Any]:
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
        if isinstance(request, ssl.SSLSocket):
            request.do_handshake()
        super().finish_request(request, client_address)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.slots.take(request, client_address[0])
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # The socket's timeout applies to each read, so a client that sends single bytes would never
        # hit it.
        deadline = threading.Timer(_MAX_SECONDS, _shut, [request])
        deadline.daemon = True
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self.slots.release(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: a scraper may disconnect at any time."""


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # SSLSocket's own method ends TLS first: another thread could still write, in plaintext.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "kafka-client-telemetry"
    sys_version = ""
    # Chunks need 1.1. A truncated body without a length would look complete.
    protocol_version = "HTTP/1.1"
    timeout = 10.0

    def do_GET(self) -> None:
        self.server.slots.asked(self.connection)
        self.close_connection = True
        if not _is_allowed(self.headers.get_all("host", []), self.server.hosts):
            # Prevents DNS rebinding: a web page whose name resolves to this address could read the
            # metrics.
            self.send_error(421, "the Host header has a name that is not in allowed_hosts")
            return
        if not self.server.web.allows(self.headers.get("authorization")):
            self._ask_for_a_login()
            return
        if self.path.partition("?")[0] != _PATH:
            self.send_error(404, f"there is only {_PATH}")
            return
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

    def do_HEAD(self) -> None:
        self.do_GET()

    def _ask_for_a_login(self) -> None:
        body = b"a login is needed: basic_auth_users of web_config_file\n"
        self.send_response(401)
        self.send_header("www-authenticate", 'Basic realm="metrics", charset="UTF-8"')
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the name in http.server
        """Log nothing: scrapes are not logged."""


def _compressed(chunks: Iterator[bytes]) -> Iterator[bytes]:
    # Level 2 takes half as long again and saves a few per cent.
    compressor = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _is_allowed(headers: list[str], hosts: frozenset[str]) -> bool:
    """Return whether the Host header names this server. HTTP/1.0 may omit it.

    Any IP address is allowed, because DNS rebinding needs a host name.
    """
    if len(headers) != 1:
        return not headers
    name = re.sub(r":[0-9]*$", "", headers[0].strip()).lower()
    if name in hosts:
        return True
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        return True
    return False
