"""Subjects as Java writes them; tests/integration/test_principal_rules.py compares with Java."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from receiver.principal.distinguished_name import MalformedCertificateError, subject_name
from tests.unit.principal.certificates import (
    BMP,
    COMMON_NAME,
    EMAIL_ADDRESS,
    IA5,
    PRINTABLE,
    T61,
    UNIVERSAL,
    UTF8,
    Attribute,
    certificate,
    der,
    name,
)


def test_the_subject_of_a_real_certificate() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme, Inc."),
            x509.NameAttribute(NameOID.COMMON_NAME, "Jürgen"),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "j@example.com"),
        ]
    )
    start = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(key.public_key())
        .serial_number(2**150)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    assert (
        subject_name(made.public_bytes(Encoding.DER))
        == f"{EMAIL_ADDRESS}=#160d6a406578616d706c652e636f6d,CN=Jürgen,O=Acme\\, Inc.,C=DE"
    )


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        ((COMMON_NAME, UTF8, b'a,b+c"d\\e<f>g;h=i#j'), 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
        ((COMMON_NAME, UTF8, b"#a"), "CN=\\#a"),
        ((COMMON_NAME, UTF8, b"  a b \r"), "CN=\\ \\ a b\\ \\\r"),
        ((COMMON_NAME, UTF8, b"  "), "CN=\\ \\ "),
        ((COMMON_NAME, UTF8, b""), "CN="),
        ((COMMON_NAME, UTF8, b"a\0b\nc"), "CN=a\\00b\nc"),
        ((COMMON_NAME, UTF8, "Jürgen 😀".encode()), "CN=Jürgen 😀"),
        ((COMMON_NAME, UTF8, b"a\xed\xa0\x80\xff"), "CN=a\ufffd\ufffd"),
        ((COMMON_NAME, PRINTABLE, b"alice"), "CN=alice"),
        ((COMMON_NAME, T61, b"J\xfcrgen"), "CN=J\ufffdrgen"),
        ((COMMON_NAME, BMP, "ab".encode("utf-16-be")), "CN=\\00a\\00b"),
        ((COMMON_NAME, UNIVERSAL, "a".encode("utf-32-be")), "CN=#1c0400000061"),
        ((COMMON_NAME, 0x02, b"\x07"), "CN=#020107"),
        (("0.9.2342.19200300.100.1.1", UTF8, b"u"), "UID=u"),
        (("0.9.2342.19200300.100.1.25", IA5, b"example"), "DC=example"),
        (("2.5.4.9", UTF8, b"s"), "STREET=s"),
        (("2.5.4.5", UTF8, b"7"), "2.5.4.5=#0c0137"),
        (("2.999.1", UTF8, b""), "2.999.1=#0c00"),
        (("0.39.1", UTF8, b""), "0.39.1=#0c00"),
    ],
)
def test_values(attribute: Attribute, text: str) -> None:
    assert subject_name(certificate(name([attribute]))) == text


def test_the_last_relative_name_comes_first_and_its_attributes_in_their_order() -> None:
    subject = name(
        [("2.5.4.6", PRINTABLE, b"DE")], [("2.5.4.11", UTF8, b"dev"), (COMMON_NAME, UTF8, b"alice")]
    )
    assert subject_name(certificate(subject)) == "OU=dev+CN=alice,C=DE"


@pytest.mark.parametrize("version", [None, b"\x02"])
def test_an_empty_subject_is_empty(version: bytes | None) -> None:
    assert subject_name(certificate(name(), version=version)) == ""


GOOD = certificate(name([(COMMON_NAME, UTF8, b"alice")]))


@pytest.mark.parametrize(
    ("malformed", "message"),
    [
        (b"", "expected one certificate in DER, found 0"),
        (GOOD + b"\x05\x00", "found 2 elements"),
        (GOOD[:-1], "the certificate is cut short: byte 0 announces"),
        (b"\x30", "no DER element at byte 0"),
        (b"\x30\x80\x00\x00", "no definite length"),
        (b"\x30\x85\x01\x01\x01\x01\x01", "no definite length"),
        (b"\x1f\x01\x00", "no DER element"),
        (b"-----BEGIN CERTIFICATE-----", "the certificate has the DER tag 0x2d, not 0x30|cut short"),
        (der(0x30), "tbsCertificate is missing"),
        (der(0x30, der(0x30)), "subject is missing"),
        (certificate(der(0x31)), "subject has the DER tag 0x31, not 0x30"),
        (certificate(der(0x30, der(0x30))), "a relative distinguished name has the DER tag 0x30"),
        (certificate(der(0x30, der(0x31, der(0x30)))), "an attribute of the subject has 0 elements"),
        (
            certificate(der(0x30, der(0x31, der(0x30, der(0x0C), der(0x0C))))),
            "an attribute's type has the DER tag",
        ),
        (certificate(der(0x30, der(0x31, der(0x30, der(0x06), der(0x0C))))), "truncated object identifier"),
        (certificate(der(0x30, der(0x31, der(0x30, der(0x06, b"\x80"), der(0x0C))))), "truncated object"),
    ],
)
def test_malformed_der(malformed: bytes, message: str) -> None:
    with pytest.raises(MalformedCertificateError, match=message):
        subject_name(malformed)


def test_the_longest_runs_of_blanks_take_no_longer_than_other_text() -> None:
    blanks = b" " * 1_000_000
    assert len(subject_name(certificate(name([(COMMON_NAME, UTF8, b"a" + blanks + b"a")])))) == 1_000_005
