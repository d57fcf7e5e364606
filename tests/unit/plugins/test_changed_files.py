"""Secrets and certificates of plugins are read again when their files change, and cost no push."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic import Field
from structlog.testing import capture_logs

from receiver.host.delivery.statistics import PluginStatistics
from receiver.host.discovery import HostedPlugin, load_plugins
from receiver.host.host import PluginHost
from receiver.host.settings import HostSettings
from receiver.plugin import ExportResult, PluginConfig, Push, RetryableError, Secret
from tests.unit.host.support import FAST, Single, wait_for
from tests.unit.plugins.destinations import (
    Certificates,
    GrpcDestination,
    HttpDestination,
    Reply,
    grpc_destination,
    http_destination,
    make_certificates,
)
from tests.unit.plugins.otlp.test_cumulative_exports import counted, sums
from tests.unit.plugins.support import client_push

READ_AGAIN = "secrets and certificates read again"


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of another authority."""
    return make_certificates(tmp_path_factory.mktemp("others"))


def replace(file: Path, content: str | bytes) -> None:
    """Replace a file as Kubernetes and good scripts do: at once."""
    new = file.with_suffix(".new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.rename(file)


class Running:
    """A running plugin of one entry."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.entry = {**FAST, **entry}
        self._pushed = 0
        self.host = PluginHost(load_plugins([self.entry]), watch_every_s=0.05)

    @property
    def statistics(self) -> PluginStatistics:
        (statistics,) = self.host.statistics()
        return statistics

    def push(self, pushes: int = 1) -> None:
        for _ in range(pushes):
            self._pushed += 1
            self.host.offer(counted(self._pushed, 5))

    def delivers(self, pushes: int) -> None:
        wait_for(lambda: self.statistics.exported_pushes == pushes)
        assert sum(self.statistics.dropped.values()) == 0


@contextmanager
def running(**entry: Any) -> Iterator[Running]:
    one = Running(entry)
    one.host.start()
    try:
        yield one
    finally:
        one.host.stop(20)


def http_entry(server: HttpDestination, type_: str, scheme: str = "http", **own: Any) -> dict[str, Any]:
    url = f"{scheme}://127.0.0.1:{server.port}"
    if type_ == "otlp":
        return {"type": "otlp", "protocol": "http", "endpoint": url, **own}
    return {"type": "prometheus", "remote_write": {"url": f"{url}/write", "version": "1.0", **own}}


@pytest.mark.parametrize("isolation", ["thread", pytest.param("process", marks=pytest.mark.full)])
@pytest.mark.parametrize("type_", ["otlp", "prometheus"])
def test_a_rotated_token_is_used_over_http(
    http_server: HttpDestination, tmp_path: Path, type_: str, isolation: str
) -> None:
    token, valid = tmp_path / "token", ["first-token"]
    token.write_text("first-token\n")

    def answer(body: bytes) -> Reply:
        sent = http_server.headers[-1]["authorization"]
        return Reply() if sent == valid[0] else Reply(401, f"no {sent}".encode(), {})

    http_server.answer = answer
    entry = http_entry(http_server, type_, headers={"authorization": {"file": str(token)}})
    with running(**entry, isolation=isolation) as one:
        one.push()
        one.delivers(1)
        valid[0] = "second-token"
        one.push(3)
        wait_for(lambda: one.statistics.consecutive_failures >= 2)
        replace(token, "wrong-token")
        wait_for(lambda: http_server.headers[-1]["authorization"] == "wrong-token")
        wait_for(lambda: one.statistics.last_error == "HTTP 401: no **********")
        replace(token, "second-token")
        one.delivers(4)
        assert one.statistics.restarts == 0


def test_a_rotated_token_is_used_over_grpc(grpc_server: GrpcDestination, tmp_path: Path) -> None:
    token, valid = tmp_path / "token", ["first-token"]
    token.write_text("first-token")

    def answer(body: bytes, context: grpc.ServicerContext) -> bytes:
        if grpc_server.metadata[-1]["authorization"] != valid[0]:
            context.set_code(grpc.StatusCode.UNAUTHENTICATED)
        return b""

    grpc_server.answer = answer
    endpoint = f"http://127.0.0.1:{grpc_server.port}"
    with running(type="otlp", endpoint=endpoint, headers={"authorization": {"file": str(token)}}) as one:
        one.push()
        one.delivers(1)
        valid[0] = "second-token"
        one.push(3)
        wait_for(lambda: one.statistics.consecutive_failures >= 2)
        replace(token, "second-token")
        one.delivers(4)


def server_context(certificates: Certificates, clients: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=clients.ca)
    context.load_cert_chain(certificates.cert("server"), certificates.key("server"))
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def copies(folder: Path, certificates: Certificates, clients: Certificates) -> dict[str, str]:
    """Write the files of ``tls``; the client's certificate may be another authority's."""
    files = {"ca_file": "ca.pem", "cert_file": "client.pem", "key_file": "client.key"}
    replace(folder / "ca.pem", certificates.ca.read_bytes())
    replace(folder / "client.key", clients.key("client").read_bytes())
    replace(folder / "client.pem", clients.cert("client").read_bytes())
    return {key: str(folder / name) for key, name in files.items()}


@pytest.mark.parametrize("type_", ["otlp", "prometheus"])
def test_changed_authorities_and_client_certificates_are_used_over_http(
    certificates: Certificates, others: Certificates, tmp_path: Path, type_: str
) -> None:
    context = server_context(certificates, certificates)
    tls = copies(tmp_path, certificates, certificates)
    with (
        http_destination(context) as server,
        running(**http_entry(server, type_, "https", tls=tls)) as one,
    ):
        one.push()
        one.delivers(1)
        # The server gets a certificate of another authority, and closes the old connection.
        context.load_cert_chain(others.cert("server"), others.key("server"))
        server.answer = lambda body: None
        one.push(3)
        wait_for(lambda: "certificate verify failed" in (one.statistics.last_error or ""))
        server.answer = lambda body: Reply()
        replace(tmp_path / "ca.pem", others.ca.read_bytes())
        one.delivers(4)
        # It trusts the other authority's clients only, and closes the connection again.
        context.load_verify_locations(others.ca)
        server.answer = lambda body: None
        copies(tmp_path, others, others)
        one.push(3)
        wait_for(lambda: one.statistics.consecutive_failures > 0)
        server.answer = lambda body: Reply()
        one.delivers(7)


def test_changed_authorities_and_client_certificates_are_used_over_grpc(
    certificates: Certificates, others: Certificates, tmp_path: Path
) -> None:
    def credentials(server: Certificates, clients: Certificates) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials(
            [(server.key("server").read_bytes(), server.cert("server").read_bytes())],
            root_certificates=clients.ca.read_bytes(),
            require_client_auth=True,
        )

    tls = copies(tmp_path, certificates, certificates)
    with grpc_destination(credentials(certificates, certificates)) as first:
        port = first.port
        one = Running(
            {"type": "otlp", "endpoint": f"https://127.0.0.1:{port}", "tls": tls, "timeout_ms": 500}
        )
        one.host.start()
        one.push()
        one.delivers(1)
    with grpc_destination(credentials(others, others), port=port):
        one.push(3)
        wait_for(lambda: one.statistics.consecutive_failures >= 2)
        replace(tmp_path / "ca.pem", others.ca.read_bytes())
        wait_for(lambda: one.statistics.consecutive_failures >= 4)
        assert one.statistics.exported_pushes == 1, "the client's certificate is the old one"
        copies(tmp_path, others, others)
        one.delivers(4)
        one.host.stop(20)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_half_written_file_leaves_the_old_one_in_use_and_says_so(
    certificates: Certificates, tmp_path: Path, isolation: str
) -> None:
    tls = copies(tmp_path, certificates, certificates)
    context = server_context(certificates, certificates)
    whole = certificates.cert("client").read_text()
    with (
        capture_logs() as logs,
        http_destination(context) as server,
        running(**http_entry(server, "otlp", "https", tls=tls), isolation=isolation) as one,
    ):
        one.push()
        one.delivers(1)
        replace(tmp_path / "client.pem", whole[: len(whole) // 2])

        def problem() -> str | None:
            one.push()
            return one.statistics.files_problem

        wait_for(lambda: problem() is not None)
        assert "tls.cert_file" in (one.statistics.files_problem or "")
        one.delivers(one.statistics.offered_pushes)
        replace(tmp_path / "client.pem", whole)
        wait_for(lambda: problem() is None)
        one.delivers(one.statistics.offered_pushes)
        assert one.statistics.failures == 0
    said = [line for line in logs if line["event"] == "changed files can't be used, the old ones stay"]
    assert "tls.cert_file" in said[0]["problem"]
    assert READ_AGAIN in [line["event"] for line in logs]


@pytest.mark.full
def test_an_empty_or_missing_secret_leaves_the_old_one_in_use(
    http_server: HttpDestination, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first-token")
    entry = http_entry(http_server, "otlp", headers={"authorization": {"file": str(token)}})
    with running(**entry) as one:

        def problem() -> str:
            one.push()
            return one.statistics.files_problem or ""

        token.write_text("")
        wait_for(lambda: f"headers.authorization: the secret's file {token} is empty" in problem())
        token.unlink()
        wait_for(lambda: "the secret's file" in problem() and "cannot be read" in problem())
        one.delivers(one.statistics.offered_pushes)
        assert {headers["authorization"] for headers in http_server.headers} == {"first-token"}


def test_a_reload_reads_the_files_of_an_unchanged_plugin_again(
    http_server: HttpDestination, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first-token")
    entry = http_entry(http_server, "otlp", headers={"authorization": {"file": str(token)}})
    with capture_logs() as logs, running(**entry) as one:
        one.push()
        one.delivers(1)
        status = token.stat()
        token.write_text("other-token")
        os.utime(token, ns=(status.st_atime_ns, status.st_mtime_ns))
        one.host.replace(load_plugins([one.entry], one.host.running), 20)
        one.push()
        one.delivers(2)
        assert http_server.headers[-1]["authorization"] == "other-token"
        assert one.statistics.offered_pushes == 2, "the same plugin goes on"
    assert READ_AGAIN in [line["event"] for line in logs]


def test_a_reload_without_a_change_says_nothing_of_files(
    http_server: HttpDestination, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first-token")
    entry = http_entry(http_server, "otlp", headers={"authorization": {"file": str(token)}})
    with capture_logs() as logs, running(**entry) as one:
        one.push()
        one.delivers(1)
        one.host.replace(load_plugins([one.entry], one.host.running), 20)
        one.push()
        one.delivers(2)
    assert READ_AGAIN not in [line["event"] for line in logs]


def test_cumulative_sums_go_on_after_a_rotation(http_server: HttpDestination, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first-token")
    entry = http_entry(
        http_server, "otlp", temporality="cumulative", headers={"authorization": {"file": str(token)}}
    )
    with running(**entry) as one:
        one.host.offer(counted(1, 5))
        one.delivers(1)
        replace(token, "second-token")
        one.host.replace(load_plugins([one.entry], one.host.running), 20)
        one.host.offer(counted(2, 7))
        one.delivers(2)
    assert http_server.headers[-1]["authorization"] == "second-token"
    assert [sums(body)[-1][-1] for body in http_server.bodies] == [5, 12]


class TokenConfig(PluginConfig):
    token: Secret = Field(description="A secret.")


class Simple(Single):
    """A plugin of somebody else, which knows nothing of changed files."""

    Config = TokenConfig
    sent: list[str] = []  # noqa: RUF012 - of all instances, as a destination's log
    behave: Callable[[str], None] = staticmethod(lambda token: None)

    def __init__(self, config: PluginConfig) -> None:
        super().__init__(self._deliver, config)
        assert isinstance(config, TokenConfig)
        self._token = config.token.get_secret_value()
        if self._token == "unusable":
            raise ValueError("this token is unusable")

    def _deliver(self, pushes: Sequence[Push]) -> ExportResult | None:
        self.sent.append(self._token)
        if self._token == "first-token" and len(self.sent) > 1:
            raise RetryableError("expired")
        return None


def test_a_plugin_that_knows_nothing_of_files_is_constructed_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first-token")
    entry = {"token": {"file": str(token)}}
    config = TokenConfig.model_validate(entry)
    hosted = HostedPlugin(
        name="p",
        type="simple",
        plugin=Simple(config),
        config=entry,
        settings=HostSettings.model_validate(FAST),
    )
    host = PluginHost([hosted])
    host.start()
    host.offer(client_push())
    wait_for(lambda: host.statistics()[0].exported_pushes == 1)
    host.offer(client_push())
    wait_for(lambda: host.statistics()[0].consecutive_failures > 1)
    replace(token, "unusable")
    wait_for(lambda: "this token is ***" in (host.statistics()[0].files_problem or ""))
    replace(token, "second-token")
    wait_for(lambda: host.statistics()[0].exported_pushes == 2)
    host.stop(20)
    assert Simple.sent[-1] == "second-token"
    assert host.statistics()[0].restarts == 0
