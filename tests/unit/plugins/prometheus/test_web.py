"""TLS and logins of the scrape endpoint, as a web configuration file of Prometheus says."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bcrypt
import httpx
import pytest

from plugins.prometheus.receiver import PrometheusReceiver
from receiver.host.discovery import PluginConfigError, load_plugins
from spark_streaming.scraping.web import Web
from spark_streaming.scraping.web_config import WebConfigError, read
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.ports import free_port

USERS = {"alice": bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()}
TLS = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n"


def users(passwords: dict[str, str] = USERS) -> str:
    return "basic_auth_users:\n" + "".join(f"  {name}: {hashed}\n" for name, hashed in passwords.items())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    CertificateAuthority().issue().write(tmp_path, "server")
    return tmp_path


def written(folder: Path, text: str) -> Path:
    file = folder / "web.yaml"
    file.write_text(text)
    return file


@contextmanager
def endpoint(config: Path) -> Iterator[str]:
    bind = f"127.0.0.1:{free_port()}"
    (hosted,) = load_plugins([{"type": "prometheus", "bind": bind, "web_config_file": str(config)}])
    assert isinstance(hosted.plugin, PrometheusReceiver)
    hosted.plugin.start()
    try:
        yield bind
    finally:
        hosted.plugin.stop()


def get(url: str, folder: Path | None = None, **arguments: Any) -> httpx.Response:
    verify: Any = True
    if folder is not None:
        verify = ssl.create_default_context(cafile=str(folder / "server-ca.pem"))
        if "certificate" in arguments:
            verify.load_cert_chain(*arguments.pop("certificate"))
    with httpx.Client(verify=verify, trust_env=False, timeout=120) as client:
        return client.get(url, **arguments)


@pytest.mark.parametrize(
    ("login", "status"),
    [
        (("alice", "secret"), 200),
        (("alice", "wrong"), 401),
        (("bob", "secret"), 401),
        (("alice", ""), 401),
        (None, 401),
    ],
)
def test_a_scrape_needs_a_login(tmp_path: Path, login: tuple[str, str] | None, status: int) -> None:
    with endpoint(written(tmp_path, users())) as bind:
        for _ in range(2):
            answer = get(f"http://{bind}/metrics", auth=login)
            assert answer.status_code == status
    assert (status == 200) == ("www-authenticate" not in answer.headers)


@pytest.mark.parametrize(
    "header", ["Basic", "Basic x", "Basic YQ==", "Bearer YWxpY2U6c2VjcmV0", "Basic \u00e4"]
)
def test_a_malformed_login_is_refused(tmp_path: Path, header: str) -> None:
    assert not Web(written(tmp_path, users())).allows(header)


def test_a_long_password_is_compared_as_bcrypt_does(tmp_path: Path) -> None:
    """Its library refuses more than 72 bytes, which htpasswd cuts."""
    hashed = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    with endpoint(written(tmp_path, users({"alice": hashed}))) as bind:
        assert get(f"http://{bind}/metrics", auth=("alice", "x" * 100)).status_code == 200


def test_a_scrape_uses_tls(folder: Path) -> None:
    with endpoint(written(folder, TLS + users())) as bind:
        assert get(f"https://{bind}/metrics", folder, auth=("alice", "secret")).status_code == 200
        assert get(f"https://{bind}/metrics", folder).status_code == 401
        plain = get(f"http://{bind}/metrics", auth=("alice", "secret"))
        assert (plain.status_code, plain.text) == (400, "this endpoint has TLS: ask it with https\n")
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            get(f"https://{bind}/metrics")


def test_a_scraper_may_need_a_certificate(folder: Path) -> None:
    own = CertificateAuthority("Scrapers").issue(client=True).write(folder, "scraper")
    tls = TLS.replace("}", ", client_ca_file: scraper-ca.pem, client_auth_type: RequireAndVerifyClientCert}")
    with endpoint(written(folder, tls)) as bind:
        certificate = (str(own.chain), str(own.key))
        assert get(f"https://{bind}/metrics", folder, certificate=certificate).status_code == 200
        with pytest.raises(httpx.TransportError):
            get(f"https://{bind}/metrics", folder)


def test_changed_files_apply_to_the_next_connection(folder: Path) -> None:
    config = written(folder, TLS)
    with endpoint(config) as bind:
        assert get(f"https://{bind}/metrics", folder).status_code == 200
        CertificateAuthority("Another").issue().write(folder, "server")
        assert get(f"https://{bind}/metrics", folder).status_code == 200
        written(folder, TLS + users())
        assert get(f"https://{bind}/metrics", folder).status_code == 401


def test_an_invalid_change_leaves_the_last_valid_files_in_force(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = written(folder, TLS + users())
    with endpoint(config) as bind:
        for broken in (
            "basic_auth_users: {alice: secret}",
            "tls_server_config: {cert_file: away, key_file: x}",
        ):
            written(folder, broken)
            assert get(f"https://{bind}/metrics", folder).status_code == 401
    printed = "".join(capsys.readouterr())
    assert printed.count("web config refused") == 2
    assert "secret" not in printed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("basic_auth_users: {alice: secret}", "the password of 'alice' is no bcrypt hash of cost 4 to 16"),
        ("basic_auth_users: {'a:b': x}", "'a:b': a user's name has no colon"),
        ("tls_server_config: {cert_file: a}", "tls_server_config.key_file: Field required"),
        (
            "tls_server_config: {cert_file: a, key_file: b, cipher_suites: []}",
            "tls_server_config.cipher_suites: this endpoint does not have that; it takes tls_server_config.",
        ),
        ("http_server_config: {http2: true}", "http_server_config: this endpoint does not have that"),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAndVerifyClientCert}",
            "client_ca_file and a client_auth_type other than NoClientCert go together",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, min_version: TLS13, max_version: TLS12}",
            "min_version TLS13 is above max_version TLS12",
        ),
        ("a: 1\na: 2", "line 2, column 1: a: the key is given twice"),
        ("- a", "web.yaml: "),
    ],
)
def test_a_mistake_names_the_file_and_the_key(tmp_path: Path, text: str, problem: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(WebConfigError) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [(TLS, r"web_config_file.*server\.crt"), (None, "web_config_file.*cannot be read: No such file")],
)
def test_config_check_reads_the_files_it_names(tmp_path: Path, text: str | None, problem: str) -> None:
    file = tmp_path / "web.yaml" if text is None else written(tmp_path, text)
    with pytest.raises(PluginConfigError, match=problem):
        load_plugins([{"type": "prometheus", "bind": "127.0.0.1:1", "web_config_file": str(file)}])


def test_a_web_config_without_an_endpoint_is_refused(tmp_path: Path) -> None:
    settings = {
        "remote_write": {"url": "http://127.0.0.1:1/w"},
        "web_config_file": str(written(tmp_path, "")),
    }
    with pytest.raises(PluginConfigError, match="web_config_file is for the scrape endpoint"):
        load_plugins([{"type": "prometheus", **settings}])
