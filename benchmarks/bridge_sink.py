"""Throughput to a destination that takes 20 ms, beside a plugin that exports one push at a time.

The bridge leads to a whole receiver with the ``otlp`` plugin, the other exporter straight to the
destination.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.bridge_programs import Programs
from benchmarks.captured import LIBRDKAFKA_PRODUCER
from benchmarks.figures import Figure, Report, table
from benchmarks.relays import serve_bridges
from tests.testbed.ports import LOOPBACK, free_port

_SINK_SECONDS: Final = 0.02
#: Within what two cores can do with receiver and destination.
_RATE: Final = 1_000
_EXPORTED: Final = re.compile(r"^kafka_telemetry_plugin_exported_pushes_total\{.*\} (\S+)$", re.MULTILINE)


class _Sink:
    """An OTLP destination over HTTP that answers each of any number of exports after 20 ms."""

    def __init__(self) -> None:
        self.requests = 0
        self._lock = threading.Lock()
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(_SINK_SECONDS)
                with sink._lock:
                    sink.requests += 1
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                """Print nothing."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self.url = f"http://{LOOPBACK}:{self._server.server_address[1]}/v1/metrics"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()


def run(folder: Path, *, quick: bool) -> Report:
    """Give both the same pushes, and count what the destination has when the last was given."""
    seconds = 5 if quick else 20
    programs = Programs(folder)
    metrics = folder / "metrics"
    metrics.write_bytes(LIBRDKAFKA_PRODUCER.inflated())
    sink = _Sink()
    with sink.running():
        alone = _given(programs, "one-at-a-time", sink.url, metrics, seconds, lambda: float(sink.requests))
        plugin = {"type": "otlp", "endpoint": sink.url, "protocol": "http"}
        bind, rest = (f"{LOOPBACK}:{free_port()}" for _ in range(2))
        with serve_bridges(bind, rest, programs.token, folder, [plugin]):
            bridged = _given(programs, "bridge", bind, metrics, seconds, lambda: _exported(rest))
    rates = {"one at a time": alone / seconds, "bridge": bridged / seconds}
    rows = [(name, f"{rate:,.0f}", f"{100 * rate / _RATE:.0f} %") for name, rate in rates.items()]
    return Report(
        title=f"{_RATE:,} pushes/s to a destination that takes 20 ms",
        text=table(("exporter", "arrived/s", "of what was given"), rows),
        raw=rates,
        figures=[
            Figure(
                name="bridge, arrived of 1,000 pushes/s, sink of 20 ms",
                value=100 * rates["bridge"] / _RATE,
                unit="%",
                at_least=95.0,
                note=f"one export at a time: {rates['one at a time']:.0f} pushes/s",
            )
        ],
    )


def _given(
    programs: Programs, exporter: str, target: str, metrics: Path, seconds: int, arrived: Callable[[], float]
) -> float:
    """Return how many pushes have arrived when the last one has been given, and a second later."""
    with programs.started("SlowSink", exporter, target, programs.token, metrics, _RATE, seconds) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "given\n"
        time.sleep(1.0)
        return arrived()


def _exported(rest: str) -> float:
    text: Any = httpx.get(f"http://{rest}/metrics", trust_env=False, timeout=60).text
    return sum(float(value) for value in _EXPORTED.findall(text))
