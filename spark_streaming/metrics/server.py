"""HTTP server of the roll-up's metrics, GET /metrics, on its own threads.

It bounds the number and duration of connections and checks the Host header.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Collection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from spark_streaming.metrics.rollup_metrics import RollupMetrics

#: Bound on open connections.
_MAX_CONNECTIONS: Final = 8
#: Maximum duration of a connection.
_MAX_SECONDS: Final = 30.0
_PATH: Final = "/metrics"


class MetricsError(Exception):
    """The server can't listen on its address. The message names the setting and the reason."""


class MetricsServer:
    """Serves scrapes until it is closed.

    Args:
        host: A name or an IP address without brackets.
        port: 0 lets the system choose.
        metrics: The source of the series.
        allowed_hosts: Names that a Host header may have, beside IP addresses, ``localhost`` and
            ``host``.

    Attributes:
        port: The port that it listens on.

    Raises:
        MetricsError: It can't listen on the address.
    """

    def __init__(
        self, host: str, port: int, metrics: RollupMetrics, *, allowed_hosts: Collection[str] = ()
    ) -> None:
        names = frozenset(name.lower() for name in ("localhost", host, *allowed_hosts))
        try:
            self._server = _Server((host, port), metrics, names)
        except OSError as error:
            raise MetricsError(
                f"metrics.bind: cannot listen on {host}:{port}: {error.strerror or error}; "
                "give an address of this machine and a free port"
            ) from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="metrics", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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

    def __init__(self, address: tuple[str, int], metrics: RollupMetrics, hosts: frozenset[str]) -> None:
        self.metrics = metrics
        self.hosts = hosts
        self.slots = _Slots()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own method looks up the host's name, which may block on DNS.
        socketserver.TCPServer.server_bind(self)

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
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "kafka-client-telemetry"
    sys_version = ""
    timeout = 10.0

    def do_GET(self) -> None:
        self.server.slots.asked(self.connection)
        if not _is_allowed(self.headers.get_all("host", []), self.server.hosts):
            # Prevents DNS rebinding: a web page whose name resolves to this address could read the
            # metrics.
            self.send_error(421, "the Host header has a name that is not in metrics.allowed_hosts")
            return
        if self.path.partition("?")[0] != _PATH:
            self.send_error(404, f"there is only {_PATH}")
            return
        content_type, text = self.server.metrics.exposition(self.headers.get("accept", ""))
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the name in http.server
        """Log nothing: scrapes are not logged."""


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
