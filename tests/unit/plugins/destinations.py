"""Real gRPC and HTTP servers on loopback, whose answers a test chooses."""

from __future__ import annotations

import gzip
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration

METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


def length_delimited(number: int, value: bytes) -> bytes:
    """Encode a protobuf field by hand, independently of the code under test."""
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


def rpc_status(message: str = "", *details: AnyMessage) -> bytes:
    """Encode a google.rpc.Status with code 14, a message and details."""
    return (
        bytes([1 << 3, 14])
        + length_delimited(2, message.encode())
        + b"".join(length_delimited(3, detail.SerializeToString()) for detail in details)
    )


def retry_info(delay_s: float | None) -> AnyMessage:
    """Return a google.rpc.RetryInfo in an Any."""
    value = b""
    if delay_s is not None:
        duration = Duration()
        duration.FromNanoseconds(int(delay_s * 1e9))
        value = length_delimited(1, duration.SerializeToString())
    return AnyMessage(type_url="type.googleapis.com/google.rpc.RetryInfo", value=value)


@dataclass
class GrpcDestination:
    """A gRPC server; ``answer`` decides what each export gets."""

    port: int = 0
    bodies: list[bytes] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    answer: Callable[[bytes, grpc.ServicerContext], bytes] = lambda body, context: b""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(self._export)

    def _export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        self.bodies.append(body)
        self.metadata.append(dict(context.invocation_metadata()))
        return self.answer(body, context)


@contextmanager
def grpc_destination(
    credentials: grpc.ServerCredentials | None = None,
    options: Sequence[tuple[str, Any]] = (),
    port: int = 0,
) -> Iterator[GrpcDestination]:
    destination = GrpcDestination()
    server = grpc.server(futures.ThreadPoolExecutor(4), options=options)

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            return destination.service(details)

    server.add_generic_rpc_handlers((Handler(),))
    address = f"127.0.0.1:{port}"
    destination.port = (
        server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    )
    server.start()
    try:
        yield destination
    finally:
        server.stop(0).wait(120)


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/x-protobuf"})


@dataclass
class HttpDestination:
    """An HTTP server that replies with ``answer``, or closes the connection on None."""

    port: int = 0
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    answer: Callable[[bytes], Reply | None] = lambda body: Reply()
    #: Written after the answer's head, in place of its body.
    drip: Callable[[Callable[[bytes], object]], None] | None = None


@contextmanager
def http_destination(context: ssl.SSLContext | None = None) -> Iterator[HttpDestination]:
    destination = HttpDestination()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            destination.connections += 1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            destination.paths.append(self.path)
            destination.headers.append({key.lower(): value for key, value in self.headers.items()})
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            destination.bodies.append(body)
            reply = destination.answer(body)
            if reply is None:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for key, value in reply.headers.items():
                self.send_header(key, value)
            if destination.drip:
                self.send_header("content-length", "100000")
                self.end_headers()
                destination.drip(self.wfile.write)
                return
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # http.server's own name
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore errors, because some tests disconnect early."""

    server = Server(("127.0.0.1", 0), Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    destination.port = server.server_port
    thread = threading.Thread(target=lambda: server.serve_forever(0.01))
    thread.start()
    try:
        yield destination
    finally:
        server.shutdown()
        thread.join(120)
        server.server_close()


@dataclass(frozen=True)
class Certificates:
    """PEM files: an authority, a server certificate for 127.0.0.1, and a client's."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def cert(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"


def make_certificates(folder: Path) -> Certificates:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=120)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
            "-subj", "/CN=Test CA", "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext")  # fmt: skip
    openssl("ec", "-in", "client.key", "-aes256", "-passout", "pass:hunter2", "-out", "encrypted.key")
    return Certificates(folder)
