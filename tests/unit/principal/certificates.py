"""Certificates with any subject at all, byte by byte, and tokens signed with the same key."""

from __future__ import annotations

import base64
from functools import cache

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

UTF8, PRINTABLE, T61, IA5, BMP, UNIVERSAL = 0x0C, 0x13, 0x14, 0x16, 0x1E, 0x1C

COMMON_NAME = "2.5.4.3"
EMAIL_ADDRESS = "1.2.840.113549.1.9.1"

#: An attribute's type, its value's tag, its value's bytes.
Attribute = tuple[str, int, bytes]


@cache
def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def public_key() -> bytes:
    return (
        _key()
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def json_web_token(header: bytes, payload: bytes, *, signed: bool) -> bytes:
    """RFC 7515's compact serialization of RS256, or of none."""
    content = base64url(header) + b"." + base64url(payload)
    signature = _key().sign(content, padding.PKCS1v15(), hashes.SHA256()) if signed else b""
    return content + b"." + base64url(signature)


def base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    length = bytes([size]) if size < 0x80 else bytes([0x80 | len(octets)]) + octets
    return bytes([tag]) + length + content


def object_identifier(dotted: str) -> bytes:
    first, second, *others = map(int, dotted.split("."))
    content = b""
    for arc in (first * 40 + second, *others):
        octets = [arc & 0x7F]
        while arc := arc >> 7:
            octets.append(arc & 0x7F | 0x80)
        content += bytes(reversed(octets))
    return der(0x06, content)


def name(*relative_names: list[Attribute]) -> bytes:
    return der(
        0x30,
        *(
            der(
                0x31,
                *(der(0x30, object_identifier(kind), der(tag, value)) for kind, tag, value in attributes),
            )
            for attributes in relative_names
        ),
    )


_SHA256_WITH_RSA = der(0x30, object_identifier("1.2.840.113549.1.1.11"), der(0x05))


def certificate(subject: bytes, *, version: bytes | None = b"\x02") -> bytes:
    """A certificate that is well-formed, with a signature that is not."""
    return der(
        0x30,
        der(
            0x30,
            b"" if version is None else der(0xA0, der(0x02, version)),
            der(0x02, b"\x01"),
            _SHA256_WITH_RSA,
            name([(COMMON_NAME, UTF8, b"issuer")]),
            der(0x30, der(0x17, b"250101000000Z"), der(0x17, b"350101000000Z")),
            subject,
            public_key(),
        ),
        _SHA256_WITH_RSA,
        der(0x03, bytes(257)),
    )
