"""Writes a certificate's subject as text, the way Java does.

Kafka applies ``ssl.principal.mapping.rules`` to the result of Java's ``X500Principal.getName()``:
RFC 2253 with Java's own habits. They depend on the bytes of each value, so the subject is read from
the DER. TLS has already verified the certificate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT_IDENTIFIER: Final = 0x06
_EXPLICIT_VERSION: Final = 0xA0

#: Longest object identifier in bytes, because an arc of thousands of digits takes long to write.
_MAX_OBJECT_IDENTIFIER: Final = 128
# The types that Java writes as text: UTF8String, PrintableString, T61String, IA5String,
# GeneralString and BMPString.
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})

# RFC 2253, section 2.3: the attributes that have a keyword.
_KEYWORDS: Final[Mapping[str, str]] = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}

# Java escapes '=' and '#' everywhere, which RFC 2253 does not require.
_SPECIAL = re.compile(r'[,=+<>#;"\\]')
# Java escapes these at the beginning and the end of a value.
_BLANKS: Final = " \r"
# For these bytes Python's decoder writes two or three replacement characters, and Java's writes
# one.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


class MalformedCertificateError(ValueError):
    """The bytes are not an X.509 certificate in DER; the message says where."""


class _Element(NamedTuple):
    tag: int
    content: bytes
    encoded: bytes


def subject_name(der_certificate: bytes) -> str:
    """Write a certificate's subject as Java's ``X500Principal.getName()`` does.

    Args:
        der_certificate: One X.509 certificate in DER, as from
            ``SSLObject.getpeercert(binary_form=True)``.

    Returns:
        The relative distinguished names, last first, separated by commas (RFC 2253, section 2). An
        attribute without a keyword in RFC 2253 is written as its number and the value's DER in hex:
        ``1.2.840.113549.1.9.1=#1613...``.

    Raises:
        MalformedCertificateError: The bytes are not a certificate in DER.
    """
    certificate = list(_elements(der_certificate, "the certificate"))
    if len(certificate) != 1:
        raise MalformedCertificateError(f"expected one certificate in DER, found {len(certificate)} elements")
    signed = next(_elements(_content(certificate[0], _SEQUENCE, "the certificate"), "the certificate"), None)
    fields = list(_elements(_content(signed, _SEQUENCE, "tbsCertificate"), "tbsCertificate"))
    # RFC 5280, section 4.1: [version], serialNumber, signature, issuer, validity, subject.
    index = 5 if fields and fields[0].tag == _EXPLICIT_VERSION else 4
    subject = _content(fields[index] if len(fields) > index else None, _SEQUENCE, "subject")
    names = [_relative_name(element) for element in _elements(subject, "subject")]
    return ",".join(reversed(names))


def _relative_name(element: _Element) -> str:
    attributes = _elements(
        _content(element, _SET, "a relative distinguished name"), "a relative distinguished name"
    )
    return "+".join(_attribute(attribute) for attribute in attributes)


def _attribute(element: _Element) -> str:
    pair = list(_elements(_content(element, _SEQUENCE, "an attribute"), "an attribute"))
    if len(pair) != 2:
        raise MalformedCertificateError(
            f"an attribute of the subject has {len(pair)} elements, not a type and a value"
        )
    number = _dotted(_content(pair[0], _OBJECT_IDENTIFIER, "an attribute's type"))
    value = pair[1]
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{value.encoded.hex()}"
    # Java reads every type of string as UTF-8, also BMPString and T61String.
    text = _SURROGATE.sub(b"\xff", value.content).decode("utf-8", "replace")
    escaped = _SPECIAL.sub(r"\\\g<0>", text).replace("\0", "\\00")
    start = len(escaped) - len(escaped.lstrip(_BLANKS))
    end = max(start, len(escaped.rstrip(_BLANKS)))
    blanks = [f"\\{blank}" for blank in escaped[:start]], [f"\\{blank}" for blank in escaped[end:]]
    return "".join([keyword, "=", *blanks[0], escaped[start:end], *blanks[1]])


def _content(element: _Element | None, tag: int, what: str) -> bytes:
    if element is None:
        raise MalformedCertificateError(f"{what} is missing")
    if element.tag != tag:
        raise MalformedCertificateError(f"{what} has the DER tag {element.tag:#04x}, not {tag:#04x}")
    return element.content


def _elements(der: bytes, what: str) -> Iterator[_Element]:
    """Yield the elements that follow each other in ``der`` (X.690, section 8.1)."""
    start = 0
    while start < len(der):
        header = der[start : start + 2]
        if len(header) < 2 or header[0] & 0x1F == 0x1F:
            raise MalformedCertificateError(f"{what} has no DER element at byte {start}")
        position, length = start + 2, header[1]
        if length > 0x7F:
            octets = der[position : position + (length & 0x7F)]
            position += length & 0x7F
            length = int.from_bytes(octets, "big")
            if not 1 <= len(octets) <= 4:
                raise MalformedCertificateError(f"{what} has no definite length at byte {start}")
        end = position + length
        if end > len(der):
            raise MalformedCertificateError(f"{what} is cut short: byte {start} announces {length} bytes")
        yield _Element(der[start], der[position:end], der[start:end])
        start = end


def _dotted(octets: bytes) -> str:
    """Write an object identifier's arcs with dots (X.690, section 8.19)."""
    if not octets or octets[-1] & 0x80:
        raise MalformedCertificateError("an attribute's type is a truncated object identifier")
    if len(octets) > _MAX_OBJECT_IDENTIFIER:
        raise MalformedCertificateError(
            f"an attribute's type is an object identifier of {len(octets)} bytes, at most "
            f"{_MAX_OBJECT_IDENTIFIER} are expected"
        )
    arcs: list[int] = []
    arc = 0
    for octet in octets:
        arc = arc << 7 | octet & 0x7F
        if not octet & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, [first, arcs[0] - 40 * first, *arcs[1:]]))
