"""The record layer of the TLS fuzzer is correct: OpenSSL reads its records."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.testbed.certificates import CertificateAuthority
from tests.testbed.tls13 import ALERT, HANDSHAKE, Tls13Client


class Server:
    """OpenSSL's side of a connection."""

    def __init__(self, folder: Path) -> None:
        files = CertificateAuthority().issue().write(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.chain, files.key)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.client = Tls13Client(files.ca)
        said = b""
        while not self.client.is_ready:
            self.incoming.write(self.client.shake_hands(said))
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                said = self.outgoing.read()
        self.tls.do_handshake()

    def reads(self, *records: bytes) -> bytes:
        for record in records:
            self.incoming.write(record)
        data = b""
        while True:
            try:
                some = self.tls.read(65_536)
            except ssl.SSLWantReadError:
                return data
            if not some:
                return data
            data += some


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def test_openssl_reads_data_padding_and_empty_records(server: Server) -> None:
    records = server.client.records
    assert server.reads(records.application_data(b"one")) == b"one"
    assert server.reads(records.application_data(b""), records.application_data(b"two", padding=99)) == b"two"
    assert server.reads(records.application_data(bytes(16_384))) == bytes(16_384)


def test_openssl_follows_key_updates_and_answers_them(server: Server) -> None:
    records = server.client.records
    updates = [records.key_update(requested=number % 3 == 0, records=1 + number % 5) for number in range(10)]
    assert server.reads(*updates, records.application_data(b"new key")) == b"new key"
    server.tls.write(b"answer")
    assert server.client.read(server.outgoing.read()) == b"answer"


def test_openssl_understands_alerts(server: Server) -> None:
    records = server.client.records
    with pytest.raises(ssl.SSLError, match=r"(?i)internal.error"):
        server.reads(records.alert(80))


def test_openssl_sees_an_orderly_end(server: Server) -> None:
    records = server.client.records
    assert server.reads(records.application_data(b"last"), records.close_notify()) == b"last"
    server.tls.unwrap()  # raises where the client has not ended yet


@pytest.mark.parametrize("kind", [ALERT, HANDSHAKE, 99])
def test_openssl_refuses_empty_records_of_other_types(server: Server, kind: int) -> None:
    with pytest.raises(ssl.SSLError):
        server.reads(server.client.records.record(kind, b""))


def test_openssl_refuses_a_record_that_was_changed(server: Server) -> None:
    record = bytearray(server.client.records.application_data(b"data"))
    record[-1] ^= 1
    with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac|decryption"):
        server.reads(bytes(record))
