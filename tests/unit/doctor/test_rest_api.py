"""Asks what holds the REST port: a receiver, another program, or nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from receiver.doctor.examination import _clock
from receiver.doctor.rest_api import Access, AccessError, NotRunningError, RestApi, RestError, _ahead_s
from receiver.settings.hostport import HostPort
from receiver.settings.rest import RestSettings
from tests.testbed.ports import free_port

#: Status, content type and body of an answer.
Answer = tuple[int, str, bytes]
LIVE: Answer = (200, "application/json", json.dumps({"status": "live", "version": "9.9"}).encode())


@contextmanager
def served(answer: Callable[[str], Answer], seen: list[str | None]) -> Iterator[RestSettings]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["authorization"])
            status, content_type, body = answer(self.path)
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # http.server's own name
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore errors: the doctor ends answers that are too long."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=lambda: server.serve_forever(0.01))
    thread.start()
    try:
        yield RestSettings(bind=HostPort(host="127.0.0.1", port=server.server_port))
    finally:
        server.shutdown()
        thread.join(120)
        server.server_close()


def ask(settings: RestSettings, call: Callable[[RestApi], Any], access: Access | None = None) -> Any:
    async def run() -> Any:
        api = RestApi(settings, access or Access())
        try:
            return await call(api)
        finally:
            await api.close()

    return asyncio.run(run())


def test_a_receiver_is_known_by_its_answer_and_gets_no_token_for_it() -> None:
    seen: list[str | None] = []
    with served(lambda path: LIVE, seen) as settings:
        assert ask(settings, lambda api: api.version(), Access(token="t" * 20)) == "9.9"
        assert ask(settings, lambda api: api.get("/v1/plugins"), Access(token="t" * 20))["version"] == "9.9"
    assert seen == [None, f"Bearer {'t' * 20}"]


def test_a_clock_that_differs_is_a_warning() -> None:
    now = datetime.now(UTC)
    for offset_s, words in ((0, None), (-7200, "2 h behind"), (7200, "ahead of")):
        ahead_s = _ahead_s(format_datetime(now + timedelta(seconds=offset_s), usegmt=True))
        found = [finding.seen for finding in _clock("REST API", ahead_s)]
        assert len(found) == (words is not None)
        assert words is None or words in found[0]
    assert (_ahead_s(""), _ahead_s("yesterday"), _clock("REST API", None)) == (None, None, [])


@pytest.mark.parametrize(
    "answer",
    [
        (200, "text/html", b"<html>"),
        (404, "application/json", b"{}"),
        (200, "application/json", b"[" * 100_000),
        (200, "application/json", b"x" * 20_000_000),
        (401, "text/plain", b"who are you"),
    ],
    ids=["html", "not found", "deep", "long", "another login"],
)
def test_another_program(answer: Answer) -> None:
    with (
        served(lambda path: answer, []) as settings,
        pytest.raises(RestError, match=r"something else answers|more than") as refused,
    ):
        ask(settings, lambda api: api.version())
    assert not isinstance(refused.value, NotRunningError)


def test_livez_may_need_a_login() -> None:
    with served(lambda path: (401, "application/problem+json", b"{}"), []) as settings:
        assert ask(settings, lambda api: api.version()) == "unknown"
        with pytest.raises(AccessError, match="wants a token"):
            ask(settings, lambda api: api.get("/v1/plugins"))
        with pytest.raises(AccessError, match="does not know the token"):
            ask(settings, lambda api: api.get("/v1/plugins"), Access(token="t" * 20))


def test_nothing_listens() -> None:
    settings = RestSettings(bind=HostPort(host="127.0.0.1", port=free_port()))
    with pytest.raises(NotRunningError, match="nothing listens at 127"):
        ask(settings, lambda api: api.version())


def test_an_error_is_told_by_its_reason() -> None:
    reason = json.dumps({"detail": "listener A: the broker is away"}).encode()
    with (
        served(lambda path: (503, "application/problem+json", reason), []) as settings,
        pytest.raises(RestError, match=r"^listener A: the broker is away$"),
    ):
        ask(settings, lambda api: api.get("/readyz"))


def test_a_viewers_token_of_the_configuration_is_taken(tmp_path: Path) -> None:
    for name, text in (("editor", "e" * 20), ("viewer", "v" * 20), ("broken", "two words\nsecret")):
        (tmp_path / name).write_text(text)
    tokens = [
        {"name": name, "role": role, "file": str(tmp_path / name)}
        for name, role in (("editor", "editor"), ("broken", "viewer"), ("viewer", "viewer"))
    ]
    seen: list[str | None] = []
    with served(lambda path: LIVE, seen) as settings:
        with_tokens = RestSettings.model_validate({"bind": settings.bind, "tokens": tokens})
        ask(with_tokens, lambda api: api.get("/v1/plugins"))
    assert seen == [f"Bearer {'v' * 20}"]


def test_where_the_receiver_is_reached() -> None:
    wildcard, bound = HostPort.parse("0.0.0.0:1"), HostPort.parse("10.0.0.1:1")
    assert str(Access().reached(wildcard)) == "127.0.0.1:1"
    assert str(Access().reached(HostPort.parse("[::]:1"))) == "[::1]:1"
    assert Access().reached(bound) == bound
    assert str(Access(host="pod-0").reached(bound)) == "pod-0:1"
