"""TLS and client certificates over real connections."""

import asyncio
import contextlib
import datetime
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from cryptography.hazmat.primitives import serialization
from starlette.types import Receive, Scope, Send

from receiver.api import RestServer, ServerError
from receiver.api import server as server_module
from receiver.settings.rest import RestSettings
from receiver.tls import server_context
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.testbed.ports import LOOPBACK, listening_on
from tests.unit.api.conftest import EDITOR_TOKEN, VIEWER_TOKEN, Api, Clock, bearer, problem_of, token_settings
from tests.unit.gateway.support import eventually


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that gets no request."""


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture
def files(authority: CertificateAuthority, tmp_path: Path) -> CertificateFiles:
    return authority.issue(common_name="localhost").write(tmp_path, "server")


def tls_settings(files: CertificateFiles, **facts: Any) -> dict[str, Any]:
    return {"cert_file": str(files.chain), "key_file": str(files.key), **facts}


def mutual(files: CertificateFiles, client_auth: str = "required", **facts: Any) -> RestSettings:
    clients = [
        {"name": "eve", "role": "editor", "subject": "CN=eve,O=Example"},
        {"name": "vic", "role": "viewer", "subject": "CN=vic,O=Example"},
    ]
    shown = tls_settings(files, client_ca_file=str(files.ca), client_auth=client_auth)
    return RestSettings.model_validate({"bind": "127.0.0.1:0", "tls": shown, "clients": clients, **facts})


def trust(files: CertificateFiles, shown: CertificateFiles | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.ca)
    if shown is not None:
        context.load_cert_chain(shown.chain, shown.key)
    return context


def client_of(
    server: RestServer, files: CertificateFiles, shown: CertificateFiles | None = None
) -> httpx.AsyncClient:
    url = f"https://{server.address}"
    return httpx.AsyncClient(base_url=url, verify=trust(files, shown), trust_env=False, timeout=120)


def test_tokens_over_tls(api: Api, files: CertificateFiles) -> None:
    api.settings = token_settings(tls=tls_settings(files))

    async def scenario() -> None:
        async with api.serving() as server, client_of(server, files) as client:
            problem_of(await client.get("/v1/clients"), 401)
            answer = await client.get("/v1/clients", headers=bearer(VIEWER_TOKEN))
            assert answer.status_code == 200
            assert answer.headers["strict-transport-security"] == "max-age=31536000"
            problem_of(await client.delete("/v1/subscriptions/s", headers=bearer(VIEWER_TOKEN)), 403)

    asyncio.run(scenario())


def test_a_certificate_authenticates_its_subject(api: Api, files: CertificateFiles, tmp_path: Path) -> None:
    authority = CertificateAuthority("The clients' CA")
    shown = {
        name: authority.issue(common_name=name, organization="Example", client=True).write(tmp_path, name)
        for name in ("eve", "vic", "mallory")
    }
    api.settings = mutual(
        files, tls=tls_settings(files, client_ca_file=str(shown["eve"].ca), client_auth="required")
    )

    async def scenario() -> None:
        async with api.serving() as server:
            for name, may_ask, may_change in (("eve", 200, 201), ("vic", 200, 403), ("mallory", 401, 401)):
                async with client_of(server, files, shown[name]) as client:
                    answer = await client.get("/v1/clients")
                    assert answer.status_code == may_ask
                    answer = await client.put("/v1/subscriptions/s", json={"metrics": ["a."]})
                    assert answer.status_code == may_change
                    assert "mallory" not in answer.text
            stranger = CertificateAuthority("Another CA").issue(
                common_name="eve", organization="Example", client=True
            )
            expired = authority.issue(
                common_name="eve",
                organization="Example",
                client=True,
                not_after=datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1),
            )
            for certificate in (None, stranger, expired):
                one = None if certificate is None else certificate.write(tmp_path, "other")
                async with client_of(server, files, one) as client:
                    with pytest.raises(httpx.TransportError):
                        await client.get("/v1/clients")

    with structlog.testing.capture_logs() as lines:
        asyncio.run(scenario())
    audited = [line for line in lines if line.get("logger") == "receiver.audit"]
    assert [(line["who"], line["authenticated_by"], line["outcome"]) for line in audited] == [
        ("eve", "certificate", "changed"),
        ("vic", "certificate", "refused"),
    ]
    # Operators copy the subject from the log into rest.clients.
    assert [line["subject"] for line in lines if line.get("reason") == "unknown_certificate"] == [
        "CN=mallory,O=Example"
    ]


def test_a_token_takes_precedence_over_a_certificate(
    api: Api, authority: CertificateAuthority, files: CertificateFiles, tmp_path: Path
) -> None:
    shown = authority.issue(common_name="eve", organization="Example", client=True).write(tmp_path, "eve")
    tokens = token_settings().model_dump()["tokens"]
    api.settings = mutual(files, "requested", tokens=tokens)

    async def scenario() -> None:
        async with api.serving() as server:
            async with client_of(server, files, shown) as client:
                assert (await client.get("/v1/clients")).status_code == 200
                problem_of(await client.get("/v1/clients", headers=bearer("wrong")), 401)
                problem_of(await client.delete("/v1/subscriptions/s", headers=bearer(VIEWER_TOKEN)), 403)
            async with client_of(server, files) as client:
                problem = problem_of(await client.get("/v1/clients"), 401)
                assert "or a client certificate" in problem["detail"]
                answer = await client.delete("/v1/subscriptions/s", headers=bearer(EDITOR_TOKEN))
                problem_of(answer, 404)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("least", "spoken", "works"),
    [
        ("1.2", ssl.TLSVersion.TLSv1_2, True),
        ("1.2", ssl.TLSVersion.TLSv1_3, True),
        ("1.3", ssl.TLSVersion.TLSv1_3, True),
        ("1.3", ssl.TLSVersion.TLSv1_2, False),
    ],
)
def test_versions(api: Api, files: CertificateFiles, least: str, spoken: ssl.TLSVersion, works: bool) -> None:
    api.settings = token_settings(tls=tls_settings(files, min_version=least))

    async def scenario() -> None:
        async with api.serving() as server:
            context = trust(files)
            context.minimum_version = context.maximum_version = spoken
            async with httpx.AsyncClient(verify=context, trust_env=False, timeout=120) as client:
                if works:
                    assert (await client.get(f"https://{server.address}/livez")).status_code == 200
                else:
                    with pytest.raises(httpx.ConnectError):
                        await client.get(f"https://{server.address}/livez")

    asyncio.run(scenario())


def test_changed_files_apply_to_new_connections(
    authority: CertificateAuthority, files: CertificateFiles
) -> None:
    settings = token_settings(tls=tls_settings(files)).tls
    assert settings is not None
    clock = Clock()
    context = server_context("rest", settings, key="rest.tls", clock=clock)
    first = context.current()
    clock.now += 1
    assert context.current() is first
    files.chain.write_text("half a")
    clock.now += 1
    with structlog.testing.capture_logs() as lines:
        assert context.current() is first
    assert str(files.chain) in lines[0]["problem"]
    authority.issue(common_name="localhost").write(files.chain.parent, "server")
    assert context.current() is first
    clock.now += 1
    second = context.current()
    assert second is not first
    assert context.current() is second


@pytest.mark.parametrize("spoilt", ["chain", "key", "ca"])
def test_files_that_cannot_be_used_stop_the_start(files: CertificateFiles, spoilt: str) -> None:
    settings = mutual(files)
    file: Path = getattr(files, spoilt)
    for content in ("-----BEGIN NONSENSE", None):
        file.unlink() if content is None else file.write_text(content)
        with pytest.raises(ServerError) as caught:
            RestServer(nothing, settings, listening_on(LOOPBACK))
        assert str(caught.value).startswith("rest.tls")
        assert str(file) in str(caught.value)
        assert "NONSENSE" not in str(caught.value)


def test_an_encrypted_key_is_refused_without_a_prompt(files: CertificateFiles) -> None:
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"hunter2"),
        )
    )
    with pytest.raises(ServerError, match=r"^rest\.tls\.key_file: .*the key is encrypted"):
        RestServer(nothing, mutual(files), listening_on(LOOPBACK))


def test_an_unfinished_handshake_is_cut_off(
    api: Api, files: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_HANDSHAKE_S", 0.3)
    api.settings = token_settings(tls=tls_settings(files))

    async def scenario() -> None:
        async with api.serving() as server:
            for first in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
                writer.write(first)
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(reader.read(), 120)
                writer.close()
            await eventually(lambda: not server._open, "the end of all connections")
            # Another handshake is in progress when the server stops.
            _, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
            await eventually(lambda: len(server._open) == 1, "the connection")
        writer.close()

    asyncio.run(scenario())


def test_a_connection_whose_certificate_was_checked_before_a_reload_ends(files: CertificateFiles) -> None:
    """The files of the next server may trust others, so it adopts no such connection."""

    async def hello(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})

    async def scenario(settings: RestSettings, *, goes_on: bool) -> None:
        listening = listening_on(LOOPBACK)
        before, after = (RestServer(hello, settings, listening.dup()) for _ in range(2))
        before.start()
        reader, writer = await asyncio.open_connection(
            *listening.getsockname(), ssl=trust(files), server_hostname="localhost"
        )
        request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
        writer.write(request)
        await reader.readuntil(b"0\r\n\r\n")
        after.start(before)
        await before.stop()
        if goes_on:
            writer.write(request)
            await reader.readuntil(b"0\r\n\r\n")
        else:
            assert await reader.read() == b""
        writer.close()
        await after.stop()
        listening.close()

    asyncio.run(scenario(mutual(files, "requested"), goes_on=False))
    asyncio.run(scenario(token_settings(tls=tls_settings(files)), goes_on=True))
