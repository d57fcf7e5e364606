"""TLS contexts report bad files, and follow files that change."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs

from receiver.gateway.connection.tls_socket import wrap
from receiver.gateway.handshake import HandshakeTurns, handshake
from receiver.gateway.tls import client_context, server_context
from receiver.settings.listeners import TlsSettings
from receiver.tls import TlsFilesError
from tests.unit.gateway.support import Gate, on_loop, pair
from tests.unit.gateway.tls import Certificates, TlsPeer


def name_of(context: ssl.SSLContext, certificates: Certificates, asked: str = "localhost") -> str:
    """The common name of what a listener shows to who asks for a host."""

    async def main() -> str:
        outer, inner = pair()
        asking = certificates.client_context()
        asking.check_hostname = False
        peer = TlsPeer(outer, asking, server_name=asked)
        tls = wrap(context, inner, server_side=True)
        await asyncio.gather(peer.shake_hands(), handshake(tls, HandshakeTurns(), "peer"))
        shown = peer.tls.getpeercert(binary_form=True)
        tls.close()
        outer.close()
        assert shown is not None
        subject = x509.load_der_x509_certificate(shown).subject
        return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    return on_loop(main())


def make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def encrypt(key: Path) -> None:
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


WRONG: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no certificate": ("server.crt", Path.unlink, "No such file or directory"),
    "an empty certificate": (
        "server.crt",
        lambda file: file.write_text(""),
        "expected certificates in PEM form (no certificate or crl found)",
    ),
    "no PEM": ("server.crt", lambda file: file.write_bytes(b"\x30\x82"), "expected certificates in PEM form"),
    "a cut certificate": (
        "server.crt",
        lambda file: file.write_text(file.read_text()[:200]),
        "expected certificates in PEM form",
    ),
    "a folder": ("server.key", make_folder, "Is a directory"),
    "no key": ("server.key", Path.unlink, "No such file or directory"),
    "an empty key": ("server.key", lambda file: file.write_text(""), "expected a private key in PEM form"),
    "an encrypted key": ("server.key", encrypt, "the key is encrypted; store it without a password"),
}


@pytest.fixture
def folder(certificates: Certificates, tmp_path: Path) -> Path:
    for file in certificates.server.chain.parent.iterdir():
        shutil.copy(file, tmp_path)
    return tmp_path


def settings(folder: Path, **more: object) -> TlsSettings:
    return TlsSettings.model_validate(
        {"cert_file": folder / "server.crt", "key_file": folder / "server.key", **more}
    )


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_cannot_be_used_is_named_with_its_key_and_why(folder: Path, name: str) -> None:
    file, spoil, why = WRONG[name]
    spoil(folder / file)
    key = "cert_file" if file.endswith("crt") else "key_file"
    with pytest.raises(TlsFilesError) as raised:
        server_context("CLIENT", settings(folder))
    assert str(raised.value).startswith(f"listeners[].tls.{key}: {folder / file}: {why}")
    assert "BEGIN" not in str(raised.value)


def test_a_key_of_another_certificate_is_named(folder: Path) -> None:
    (folder / "server.key").write_bytes((folder / "client.key").read_bytes())
    with pytest.raises(TlsFilesError, match=r"tls\.key_file: .*this is not the key of .*server\.crt"):
        server_context("CLIENT", settings(folder))


def test_files_of_the_other_keys_are_named_too(folder: Path, certificates: Certificates) -> None:
    nothing = folder / "nothing.pem"
    with pytest.raises(
        TlsFilesError, match=r"^listeners\[\]\.tls\.client_ca_file: .*nothing\.pem: No such file"
    ):
        server_context("CLIENT", settings(folder, client_ca_file=nothing, client_auth="required"))
    other = {"name": "a.test", "cert_file": folder / "server.crt", "key_file": nothing}
    with pytest.raises(
        TlsFilesError, match=r"^listeners\[\]\.tls\.server_names\[\]\.key_file: .*nothing\.pem"
    ):
        server_context("CLIENT", settings(folder, server_names=[other]))
    with pytest.raises(
        TlsFilesError, match=r"^listeners\[\]\.upstream_tls\.ca_file: .*nothing\.pem: No such file"
    ):
        client_context("CLIENT", certificates.upstream_settings(ca_file=nothing))
    with pytest.raises(
        TlsFilesError, match=r"^listeners\[\]\.upstream_tls\.key_file: .*nothing\.pem: No such file"
    ):
        client_context(
            "CLIENT", certificates.upstream_settings(cert_file=folder / "client.crt", key_file=nothing)
        )


def test_a_listener_with_an_unusable_tls_file_does_not_start(folder: Path) -> None:
    (folder / "server.key").unlink()
    with pytest.raises(TlsFilesError, match=r"^listeners\[\]\.tls\.key_file: .*server\.key: No such"):
        Gate().listener(1, security_protocol="SSL", tls=settings(folder))


def test_the_certificate_is_chosen_by_the_name_that_is_asked_for(
    folder: Path, certificates: Certificates
) -> None:
    names = []
    for number, name in enumerate(("one.test", "*.two.test")):
        files = certificates.authority.issue(common_name=name).write(folder, f"name-{number}")
        names.append({"name": name, "cert_file": files.chain, "key_file": files.key})
    context = server_context("CLIENT", settings(folder, server_names=names)).current()
    shown = {
        asked: name_of(context, certificates, asked)
        for asked in (
            "one.test",
            "ONE.test",
            "a.two.test",
            "b.a.two.test",
            "two.test",
            "other.test",
            "127.0.0.1",
        )
    }
    assert shown == {
        "one.test": "one.test",
        "ONE.test": "one.test",
        "a.two.test": "*.two.test",
        "b.a.two.test": "localhost",
        "two.test": "localhost",
        "other.test": "localhost",
        "127.0.0.1": "localhost",  # SNI has no addresses
    }


# -- files that change -----------------------------------------------------------------------------


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the files whenever the context is asked for."""
    monkeypatch.setattr("receiver.watch._EVERY_S", 0.0)


@pytest.mark.usefixtures("always")
def test_a_new_certificate_is_shown_to_the_next_client(folder: Path, certificates: Certificates) -> None:
    context = server_context("CLIENT", settings(folder))
    first = context.current()
    assert context.current() is first
    certificates.authority.issue(common_name="renewed").write(folder, "server")
    with capture_logs() as log:
        assert name_of(context.current(), certificates) == "renewed"
        assert context.current() is context.current()
    assert [(line["event"], line["listener"]) for line in log] == [("TLS files re-read", "CLIENT")]
    assert name_of(first, certificates) == "localhost"


def test_files_are_looked_at_once_a_second_at_most(folder: Path, certificates: Certificates) -> None:
    context = server_context("CLIENT", settings(folder))
    first = context.current()
    certificates.authority.issue(common_name="renewed").write(folder, "server")
    assert context.current() is first


@pytest.mark.usefixtures("always")
def test_files_that_are_exchanged_by_a_symbolic_link_are_taken_over(
    folder: Path, certificates: Certificates
) -> None:
    """As Kubernetes does with a secret."""
    for name in ("old", "new"):
        (folder / name).mkdir()
        certificates.authority.issue(common_name=name).write(folder / name, "server")
    (folder / "data").symlink_to("old")
    for file in ("server.crt", "server.key"):
        (folder / file).unlink()
        (folder / file).symlink_to(f"data/{file}")
    context = server_context("CLIENT", settings(folder))
    assert name_of(context.current(), certificates) == "old"
    (folder / "next").symlink_to("new")
    (folder / "next").replace(folder / "data")
    assert name_of(context.current(), certificates) == "new"


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", WRONG)
def test_new_files_that_cannot_be_used_leave_the_old_ones_in_force(
    folder: Path, certificates: Certificates, name: str
) -> None:
    file, spoil, why = WRONG[name]
    context = server_context("CLIENT", settings(folder))
    first = context.current()
    spoil(folder / file)
    with capture_logs() as log:
        assert context.current() is first
        assert context.current() is first
    (entry,) = log
    assert entry["event"] == "TLS files can't be used, the old ones stay"
    assert entry["listener"] == "CLIENT"
    assert f"{folder / file}: {why}" in entry["problem"]
    assert "BEGIN" not in str(entry)
    if (folder / file).is_dir():
        (folder / file).rmdir()
    certificates.authority.issue(common_name="repaired").write(folder, "server")
    assert name_of(context.current(), certificates) == "repaired"


@pytest.mark.usefixtures("always")
def test_a_certificate_without_its_key_waits_for_it(folder: Path, certificates: Certificates) -> None:
    context = server_context("CLIENT", settings(folder))
    first = context.current()
    renewed = certificates.authority.issue(common_name="renewed")
    (folder / "server.crt").write_text(renewed.chain_pem)
    assert context.current() is first
    (folder / "server.key").write_text(renewed.key_pem)
    assert name_of(context.current(), certificates) == "renewed"
