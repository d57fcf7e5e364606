"""Authentication on the command line: tokens, certificates, and the errors that explain them."""

import asyncio
import hashlib
import json
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from receiver.cli.session import TOKEN_VARIABLE
from receiver.doctor.rest_api import Access, RestApi
from receiver.settings.environment import RESERVED
from receiver.settings.hostport import HostPort
from receiver.settings.rest import RestSettings
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.unit.api.conftest import EDITOR_TOKEN, VIEWER_TOKEN, token_settings
from tests.unit.cli.conftest import Run, Sidecar, served

LIST = ("subscriptions", "list", "-o", "json")
DELETE = ("subscriptions", "delete", "s")


def tokens() -> dict[str, Any]:
    return token_settings().model_dump(include={"tokens"})


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Sidecar]:
    with served(Sidecar(tmp_path / "subscriptions.db", **tokens())) as running:
        yield running


def test_without_tls_nobody_reads_the_certificates_of_all_authorities(
    run: Run, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> ssl.SSLContext:
        raise OSError("read")

    monkeypatch.setattr(ssl, "create_default_context", read)
    assert run("subscriptions", "list", "--url", sidecar.url).exit_code == 0
    assert run("subscriptions", "list", "--url", "https://127.0.0.1:1").exit_code == 2
    settings = RestSettings(bind=HostPort.parse(sidecar.url.removeprefix("http://")))
    asyncio.run(RestApi(settings, Access()).close())


def test_the_token_variable_is_not_a_setting() -> None:
    assert TOKEN_VARIABLE in RESERVED


def test_a_token_from_a_file_or_the_environment(run: Run, guarded: Sidecar, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{EDITOR_TOKEN}\n")
    put = run("subscriptions", "put", "s", "-m", "a.", "--token-file", str(file), "--url", guarded.url)
    assert (put.exit_code, put.stdout) == (0, "s: created\n")
    listed = run(*LIST, "--url", guarded.url, KAFKA_TELEMETRY_TOKEN=VIEWER_TOKEN)
    assert [load["name"] for load in json.loads(listed.stdout)] == ["s"]
    # The option takes precedence over the variable.
    both = run(*DELETE, "--token-file", str(file), "--url", guarded.url, KAFKA_TELEMETRY_TOKEN=VIEWER_TOKEN)
    assert both.exit_code == 0


def test_an_authentication_error_tells_the_options(run: Run, guarded: Sidecar) -> None:
    anonymous = run(*LIST, "--url", guarded.url)
    assert anonymous.exit_code == 1
    assert anonymous.stderr == (
        "kafka-telemetry: authentication is needed: a token of rest.tokens as `Authorization: Bearer TOKEN`; "
        "give --token-file or KAFKA_TELEMETRY_TOKEN, or --client-certificate and --client-key\n"
    )
    wrong = run(*LIST, "--url", guarded.url, KAFKA_TELEMETRY_TOKEN="a-token-that-nobody-has")
    assert wrong.exit_code == 1
    assert wrong.stderr == (
        "kafka-telemetry: the token is not known; "
        "give --token-file or KAFKA_TELEMETRY_TOKEN, or --client-certificate and --client-key\n"
    )
    viewer = run(*DELETE, "--url", guarded.url, KAFKA_TELEMETRY_TOKEN=VIEWER_TOKEN)
    assert viewer.exit_code == 1
    assert viewer.stderr == (
        "kafka-telemetry: the role viewer may only read: DELETE needs the role editor; "
        "give an editor's --token-file, or --client-certificate and --client-key\n"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"hunter2 hunter2", "expected one token, without blanks"),
        (b"hunter2\nhunter2", "expected one token, without blanks"),
        (b"\xff\xfe", "is not UTF-8 text"),
        ("größer".encode(), "expected one token, without blanks"),
    ],
)
def test_a_wrong_token_file(run: Run, tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    result = run(*LIST, "--token-file", str(file))
    assert result.exit_code == 2
    assert f"--token-file: {file}: {problem}" in " ".join(result.stderr.split())
    assert not content or content not in result.stderr.encode()


def test_there_is_no_option_for_a_token(run: Run) -> None:
    assert run(*LIST, "--token", VIEWER_TOKEN).exit_code == 2


def test_missing_files(run: Run, tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    for option in ("--token-file", "--ca-file", "--client-certificate"):
        result = run(*LIST, option, absent)
        assert result.exit_code == 2
        assert option in result.stderr
        assert "No such file or directory" in " ".join(result.stderr.split())
    assert "--client-certificate" in run(*LIST, "--client-key", absent).stderr


@pytest.fixture
def files(tmp_path: Path) -> dict[str, CertificateFiles]:
    authority = CertificateAuthority()
    return {
        "server": authority.issue().write(tmp_path, "server"),
        "eve": authority.issue(common_name="eve", organization="Example", client=True).write(tmp_path, "eve"),
        "other": CertificateAuthority("Another CA").issue(client=True).write(tmp_path, "other"),
    }


def test_certificates(run: Run, tmp_path: Path, files: dict[str, CertificateFiles]) -> None:
    server, eve, other = files["server"], files["eve"], files["other"]
    tls = {
        "cert_file": server.chain,
        "key_file": server.key,
        "client_ca_file": server.ca,
        "client_auth": "required",
    }
    clients = [{"name": "eve", "role": "editor", "subject": "CN=eve,O=Example"}]
    trust = ("--ca-file", str(server.ca))
    with served(Sidecar(tmp_path / "subscriptions.db", tls=tls, clients=clients)) as running:
        shown = ("--client-certificate", str(eve.chain), "--client-key", str(eve.key))
        put = run("subscriptions", "put", "s", "-m", "a.", *trust, *shown, "--url", running.url)
        assert (put.exit_code, put.stdout) == (0, "s: created\n"), put.stderr
        for arguments, expected in (
            ((*trust,), "; if it requires a certificate, give --client-certificate and --client-key"),
            (shown, "; give --ca-file"),
            (
                (*trust, "--client-certificate", str(other.chain), "--client-key", str(other.key)),
                "; it may reject the --client-certificate: expired, or of an unknown CA",
            ),
            ((*trust, *shown[:2]), "--client-certificate"),
        ):
            result = run(*LIST, *arguments, "--url", running.url)
            assert result.exit_code in {1, 2}
            assert expected in " ".join(result.stderr.split())
        plain = run(*LIST, "--url", running.url.replace("https", "http"))
        assert plain.stderr.endswith("; if it uses TLS, write https:// in --url\n")
        assert plain.stderr.count("\n") == 1


def test_https_against_a_server_without_tls(run: Run, tmp_path: Path) -> None:
    with served(Sidecar(tmp_path / "subscriptions.db")) as running:
        result = run(*LIST, "--url", running.url.replace("http", "https"))
        assert result.stderr.endswith("; write http:// in --url\n")


def test_a_new_token(run: Run, tmp_path: Path) -> None:
    made = [run("token", "new").stdout.splitlines() for _ in range(2)]
    assert made[0] != made[1]
    token, digest = made[0][0].removeprefix("token:  "), made[0][1].removeprefix("sha256: ")
    assert hashlib.sha256(token.encode()).hexdigest() == digest
    assert len(token) == 43
    file = tmp_path / "token"
    written = run("token", "new", "--file", str(file))
    token = file.read_text().strip()
    assert written.stdout == f"sha256: {hashlib.sha256(token.encode()).hexdigest()}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = run("token", "new", "--file", str(file))
    assert (again.exit_code, again.stderr) == (1, f"kafka-telemetry: {file}: File exists\n")
    assert file.read_text().strip() == token
