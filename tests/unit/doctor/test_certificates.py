"""TLS files: keys, chains, dates, host names."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509 import load_pem_x509_certificate

from receiver.doctor.certificates import check_tls_files, covers
from receiver.doctor.findings import Finding, State
from receiver.settings.model import ReceiverSettings
from tests.testbed.certificates import CertificateAuthority, CertificateFiles

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


def settings(tls: dict[str, str], advertised: str | None = None, **upstream: str) -> ReceiverSettings:
    listener: dict[str, Any] = {
        "name": "A",
        "bind": "0.0.0.0:19092",
        "upstream": "broker:9092",
        "security_protocol": "SSL",
        "tls": tls,
        "advertised": advertised,
    }
    if upstream:
        listener["upstream_tls"] = upstream
    return ReceiverSettings.model_validate({"listeners": [listener]})


def pair(files: CertificateFiles) -> dict[str, str]:
    return {"cert_file": str(files.chain), "key_file": str(files.key)}


def not_ok(findings: list[Finding]) -> list[tuple[str, State, str]]:
    return [
        (finding.check, finding.state, finding.subject)
        for finding in findings
        if finding.state is not State.OK
    ]


def test_good_files(authority: CertificateAuthority, tmp_path: Path) -> None:
    issued = authority.intermediate().issue(not_after=NOW + 29 * DAY)
    files = issued.write(tmp_path)
    found = check_tls_files(
        settings(pair(files), "localhost:19092", ca_file=str(files.ca)), files.ca, NOW - 5 * DAY
    )
    # The testbed's authority lives for 30 days.
    assert not_ok([item for item in found if item.check != "dates"]) == []
    assert any("2 in the chain" in item.seen for item in found)


@pytest.mark.parametrize(
    ("now", "state", "words"),
    [
        (NOW, State.WARNING, "expires in 29 days"),
        (NOW + 31 * DAY, State.FAILED, "expired on"),
        (NOW - 3 * DAY, State.FAILED, "valid from"),
    ],
)
def test_dates(
    authority: CertificateAuthority, tmp_path: Path, now: datetime.datetime, state: State, words: str
) -> None:
    files = authority.issue(not_after=NOW + 30 * DAY).write(tmp_path)
    (dates,) = (file for file in check_tls_files(settings(pair(files)), None, now) if file.check == "dates")
    assert (dates.state, words in dates.seen) == (state, True)


def test_an_authority_whose_certificates_have_ended(authority: CertificateAuthority, tmp_path: Path) -> None:
    files = authority.issue(not_after=NOW + 300 * DAY).write(tmp_path)
    found = check_tls_files(settings(pair(files), ca_file=str(files.ca)), None, NOW + 31 * DAY)
    assert not_ok(found) == [("dates", State.FAILED, "listeners[0].upstream_tls.ca_file")]


def test_a_key_of_another_certificate(authority: CertificateAuthority, tmp_path: Path) -> None:
    files, other = authority.issue().write(tmp_path), authority.issue().write(tmp_path, "other")
    mixed = {"cert_file": str(files.chain), "key_file": str(other.key)}
    found = check_tls_files(settings(mixed), None, NOW)
    assert not_ok(found) == [("files", State.FAILED, "listeners[0].tls.key_file")]
    assert "this is not the key of" in found[0].seen


def test_a_chain_that_is_broken_or_not_trusted(authority: CertificateAuthority, tmp_path: Path) -> None:
    files = authority.issue().write(tmp_path)
    stranger = CertificateAuthority("Another CA")
    files.chain.write_text(files.chain.read_text() + stranger.ca_pem)
    (broken,) = (file for file in check_tls_files(settings(pair(files)), None, NOW) if file.check == "chain")
    assert "certificate 1 in the file was not issued by the one behind it" in broken.seen
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(stranger.ca_pem)
    other = authority.issue().write(tmp_path, "other")
    found = check_tls_files(settings(pair(other)), trusted, NOW)
    (untrusted,) = (item for item in found if item.check == "chain")
    assert (untrusted.state, "its issuer is CN=Testbed CA" in untrusted.seen) == (State.FAILED, True)


def test_the_host_name_of_clients(authority: CertificateAuthority, tmp_path: Path) -> None:
    issued = authority.issue(dns_names=["*.example.com"], ip_addresses=["10.0.0.1"])
    files = issued.write(tmp_path)
    for host, good in (("b1.example.com", True), ("10.0.0.1", True), ("kafka", False), ("10.0.0.2", False)):
        found = check_tls_files(settings(pair(files), f"{host}:19092"), None, NOW)
        assert ("host_name" not in {item.check for item in found}) is good, host
    certificate = load_pem_x509_certificate(files.chain.read_bytes())
    assert covers(certificate, "B1.Example.com.")
    assert not covers(certificate, "a.b1.example.com")
    assert not covers(certificate, "example.com")
