"""HTTP server of a scrape endpoint, GET /metrics, on its own threads.

It may have TLS and logins, bounds the number and duration of connections, and checks the Host
header.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import re
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final

from spark_streaming.scraping.web import Web
from spark_streaming.threads import report_defect, start_thread

#: Bound on open connections.
MAX_CONNECTIONS: Final = 8
METRICS_PATH: Final = "/metrics"
#: Seconds without a look at new connections when the system has no room for one, and after a
#: defect.
_PAUSE_S: Final = 0.5
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_MAX_UNREAD_BYTES: Final = 65_536
_ALLOWED_METHODS: Final = ("GET", "HEAD")
_NEEDS_TLS: Final = (
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"this endpoint has TLS: ask it with https\n"
)


class ScrapeServer(ThreadingHTTPServer):
    """Serves scrapes from :meth:`start` until it is closed.

    Args:
        address: A name or an IP address without brackets, and a port; 0 lets the system choose.
        hosts: Names that a Host header may have, beside IP addresses, ``localhost`` and that of
            ``address``.
        max_seconds: Bound on the duration of a connection.

    Raises:
        OSError: It can't listen on the address.
    """

    daemon_threads = True
    block_on_close = False
    #: Connections that wait to be accepted. A client whose connection has no room here waits a
    #: second until its system tries again, so slow clients would delay a scraper.
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[ScrapeHandler],
        *,
        hosts: Collection[str],
        web: Web,
        max_seconds: float,
    ) -> None:
        self.web = web
        self.hosts = frozenset(name.lower() for name in ("localhost", address[0], *hosts))
        self.slots = _Slots()
        self._max_seconds = max_seconds
        self._thread: threading.Thread | None = None
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def start(self, thread: str) -> None:
        """Serve scrapes on a thread of this name."""
        self._thread = start_thread(thread, lambda: self.serve_forever(0.2), pause_s=_PAUSE_S)

    def close(self) -> None:
        """Stop listening. Running scrapes may finish within their time limit."""
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()

    def server_bind(self) -> None:
        """Bind without the look-up of the host's name, which may block on DNS."""
        socketserver.TCPServer.server_bind(self)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection, perhaps with TLS."""
        try:
            connection, source = super().get_request()
        except OSError as error:
            if error.errno in _NO_ROOM:
                time.sleep(_PAUSE_S)  # the connection waits, and would be ready at once
            raise
        try:
            return self._with_tls(connection), source
        except BaseException:
            connection.close()
            raise

    def _with_tls(self, connection: socket.socket) -> socket.socket:
        context = self.web.tls()
        if context is None:
            return connection
        # Without the handshake, for which the other connections would wait.
        connection.settimeout(ScrapeHandler.timeout)
        return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Make the TLS handshake, and answer, also a scraper without TLS."""
        if isinstance(request, ssl.SSLSocket):
            try:
                request.do_handshake()
            except ssl.SSLError as error:
                if error.reason == "HTTP_REQUEST":
                    _say_that_tls_is_on(request)
                return
        super().finish_request(request, client_address)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Count the connection, and answer on a thread of its own."""
        self.slots.take(request, client_address[0])
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread is left
            self.slots.release(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection, for a bounded time.

        The socket's timeout applies to each read, so a client that sends single bytes would never
        hit it.
        """
        deadline = threading.Timer(self._max_seconds, _shut, [request])
        deadline.daemon = True
        try:
            deadline.start()
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self.slots.release(request)
            self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report defects. Other errors are of scrapers, which may disconnect at any time."""
        if not isinstance(sys.exception(), OSError):
            report_defect()


class ScrapeHandler(BaseHTTPRequestHandler):
    """Checks a request, and leaves the answer to a subclass."""

    server: ScrapeServer
    server_version = "kafka-client-telemetry"
    sys_version = ""
    timeout = 10.0
    settings: ClassVar[str] = ""
    """Prefix of the settings that errors name, ``allowed_hosts`` and ``web_config_file``."""
    paths: ClassVar[tuple[str, ...]] = (METRICS_PATH,)

    def allows(self, path: str, authorization: str | None) -> bool:
        """Return whether a request may read a path."""
        return self.server.web.allows(authorization)

    def answer(self) -> None:
        """Write the answer to a scrape; to HEAD without a body."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer GET."""
        self.server.slots.asked(self.connection)
        self.close_connection = True
        path = self.path.partition("?")[0]
        if not _is_allowed(self.headers.get_all("host", []), self.server.hosts):
            # Prevents DNS rebinding: a web page whose name resolves to this address could read the
            # metrics.
            self.send_error(421, f"the Host header has a name that is not in {self.settings}allowed_hosts")
        elif not self.allows(path, self.headers.get("authorization")):
            self.ask_for_login(path)
        elif path not in self.paths:
            self.send_error(404, f"there is only {' and '.join(self.paths)}")
        elif self.command not in _ALLOWED_METHODS:
            self._say(405, "this endpoint only answers GET and HEAD", allow=", ".join(_ALLOWED_METHODS))
        else:
            self.answer()

    def do_HEAD(self) -> None:
        """Answer HEAD."""
        self.do_GET()

    def do_POST(self) -> None:
        """Refuse a method that is neither GET nor HEAD."""
        # Bytes that nobody has read would reset the connection before the answer arrives.
        with contextlib.suppress(ValueError):
            self.rfile.read(max(0, min(int(self.headers.get("content-length", 0)), _MAX_UNREAD_BYTES)))
        self.do_GET()

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_POST  # noqa: N815 # the names in http.server

    def ask_for_login(self, path: str) -> None:
        """Answer a request that may not read its path."""
        self._say(
            401,
            f"a login is needed: basic_auth_users of {self.settings}web_config_file",
            www_authenticate='Basic realm="metrics", charset="UTF-8"',
        )

    def _say(self, status: int, text: str, **headers: str) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the name in http.server
        """Log nothing: scrapes are not logged."""


class _Slots:
    """The open connections. At the bound one makes room for a new one.

    It is one of the source that has most, and of these one without a request before others, the
    oldest first. So clients that are slow, and sources with many connections, shut out nobody.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[socket.socket, str] = {}  # oldest first
        self._asking: set[socket.socket] = set()

    def take(self, connection: socket.socket, address: str) -> None:
        """Count a new connection; close another one if there are too many."""
        source = _source(address)
        with self._lock:
            if len(self._sources) >= MAX_CONNECTIONS:
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
        with self._lock:
            self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        self._sources.pop(connection, None)
        self._asking.discard(connection)


def _source(address: str) -> str:
    """Return an IPv4 address itself, or the 64 bits of an IPv6 address' network.

    An IPv6 host usually has a network of 64 bits to itself, and so any number of addresses.
    """
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return str(found.ipv4_mapped or ipaddress.IPv6Network((int(found), 64), strict=False))


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # SSLSocket's own method ends TLS first: another thread could still write, in plaintext.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _say_that_tls_is_on(connection: ssl.SSLSocket) -> None:
    """Answer in plaintext, which needs the methods below those of SSLSocket."""
    with contextlib.suppress(OSError):
        # Bytes that nobody has read would reset the connection at its end.
        socket.socket.recv(connection, _MAX_UNREAD_BYTES, socket.MSG_DONTWAIT)
        socket.socket.sendall(connection, _NEEDS_TLS)


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
