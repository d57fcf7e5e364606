"""Fuzzes certificate principals: distinguished names from DER, and mapping rules.

An input of ``rules`` is the rules' size (two bytes), the rules, and a name; one of ``names`` is a
certificate.
"""

from __future__ import annotations

import datetime
from random import Random

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type

from receiver.principal.distinguished_name import MalformedCertificateError, subject_name
from receiver.principal.mapping_rules import MappingRules, MappingRulesError, NoMatchingRuleError
from tests.fuzz.target import Target, require

# -- rules ---------------------------------------------------------------------------------------

_RULES = (
    "DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,DEFAULT",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
    "RULE:^CN=([^,]+).*$/$1/U, DEFAULT",
    r"RULE:^CN=(\w+)\/(\w+)$/$2\/$1/",
    "RULE:(a|b)*c/x$1$1$1$1/,RULE:.*/${n}/,RULE:(?P<n>.*)/${n}/",
    "RULE:/x/,RULE:x*/-/,DEFAULT",
)
_NAMES = (
    "CN=kafka1,OU=ServiceUsers,O=Org,L=City,ST=State,C=US",
    "CN=alice/bob",
    "",
    "OU=a+CN=b\\,c,O=\\#d",
    "a" * 300 + "c",
)


def _rules_input(rules: bytes, name: bytes) -> bytes:
    return len(rules).to_bytes(2, "big") + rules + name


def _run_rules(data: bytes) -> None:
    size = int.from_bytes(data[:2], "big")
    text = data[2 : 2 + size].decode("utf-8", "surrogateescape")
    name = data[2 + size :].decode("utf-8", "replace")
    try:
        rules = MappingRules.parse(text)
    except MappingRulesError as error:
        require(len(str(error)) < 2000, "an error as long as the rules")
        return
    try:
        mapped = rules.principal_name(name)
    except NoMatchingRuleError as error:
        require(len(str(error)) < 2000, "an error as long as the name")
        return
    require(rules.principal_name(name) == mapped, "mapped again it is another name")
    if text.strip() == "DEFAULT":
        require(mapped == name, "DEFAULT changed a name")


def _rules_seeds() -> list[bytes]:
    return [_rules_input(rules.encode(), name.encode()) for rules in _RULES for name in _NAMES]


def _reshape_rules(data: bytes, random: Random) -> bytes:
    size = int.from_bytes(data[:2], "big")
    rules, name = data[2 : 2 + size], data[2 + size :]
    choice = int(random.random() * 4)
    if choice == 0:
        rules += b"," + random.choice(_RULES).encode()
    elif choice == 1:
        at = random.randrange(len(rules) + 1)
        rules = rules[:at] + random.choice(_RULE_TOKENS) + rules[at:]
    elif choice == 2:
        name = random.choice(_NAMES).encode() + name[: random.randrange(20)]
    else:
        rules, name = random.choice(_RULES).encode(), name * random.randrange(4)
    return _rules_input(rules[:1500], name)


_RULE_TOKENS = (
    b"RULE:", b"DEFAULT", b"/", b"\\/", b"/L", b"/U,", b"$1", b"$99999999999", b"${n}", b"(?P<n>", b"(.*)",
    b"(a*)*", b"[^,]+", b"\\", b"\\p{L}", b"\\Q", b"\\E", b"(?i)", b"(?U)", b"[[", b"&&", b"{1000}", b"{2,}",
    b"((((", b"))))", b"|", b"^", b"$", b"\\b", b"\n", b"\x85", b"\xe2\x80\xa8", b"\xff", b"\\1", b"CN=",
)  # fmt: skip

RULES = Target(
    name="rules",
    run=_run_rules,
    seeds=_rules_seeds,
    tokens=_RULE_TOKENS,
    reshape=_reshape_rules,
    max_bytes=3000,
    # RE2 may spend 1 MiB on a pattern, and the module re2 keeps patterns.
    max_memory=32 << 20,
    brief=15_000,
)

# -- names ---------------------------------------------------------------------------------------


def _run_name(data: bytes) -> None:
    try:
        name = subject_name(data)
    except MalformedCertificateError as error:
        require(len(str(error)) < 300, "an error as long as the bytes allow")
        return
    # A byte is at most three: an escape, or a number of seven bits with its dot; keywords come with
    # it.
    require(len(name) <= 5 * len(data) + 64, f"{len(data)} bytes became a name of {len(name)}")


def _certificate(name: x509.Name) -> bytes:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    day = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(day).not_valid_after(day)
    return builder.sign(key, None).public_bytes(Encoding.DER)


def _name_seeds() -> list[bytes]:
    oid = x509.NameOID
    kinds = (
        ((oid.COMMON_NAME, "alice"), (oid.ORGANIZATION_NAME, "Example, Inc."), (oid.COUNTRY_NAME, "US")),
        ((oid.COMMON_NAME, ' #a=b;c<d>e"f\\ '), (oid.EMAIL_ADDRESS, "a@example.com")),
        ((oid.DOMAIN_COMPONENT, "example"), (oid.USER_ID, "\u00fc\0\u20ac"), (oid.STREET_ADDRESS, "x")),
        (),
    )
    seeds = []
    for kind in kinds:
        attributes = [x509.NameAttribute(which, text) for which, text in kind]
        seeds.append(_certificate(x509.Name(attributes)))
        seeds.append(
            _certificate(x509.Name([x509.RelativeDistinguishedName([attribute]) for attribute in attributes]))
        )
    odd = [
        x509.NameAttribute(oid.COMMON_NAME, "bmp", _type=_ASN1Type.BMPString),
        x509.NameAttribute(oid.SURNAME, "t61", _type=_ASN1Type.T61String),
    ]
    seeds.append(_certificate(x509.Name([x509.RelativeDistinguishedName(odd)])))
    return seeds


def _elements(der: bytes) -> list[tuple[int, bytes]] | None:
    """Split DER into tags and contents; None if it is malformed."""
    found = []
    at = 0
    while at < len(der):
        if len(der) - at < 2:
            return None
        tag, size = der[at], der[at + 1]
        at += 2
        if size > 0x7F:
            octets = size & 0x7F
            size = int.from_bytes(der[at : at + octets], "big")
            at += octets
        if at + size > len(der):
            return None
        found.append((tag, der[at : at + size]))
        at += size
    return found


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(octets)]) + octets + content


_TAGS = (0x02, 0x03, 0x06, 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E, 0x30, 0x31, 0xA0)
_CONTENTS = (
    b"",
    b"\x55\x04\x03",
    b"\x55\x04\x0a",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01",
    b"\xff" * 40 + b"\x7f",
    b"\xff" * 2200 + b"\x7f",
    b"\x80\x01",
    b" a ",
    b"\r",
    b"\xed\xa0\x80",
    b"\x00a\x00b",
    b'=+,;<>#"\\',
)


def _reshape_name(data: bytes, random: Random, depth: int = 0) -> bytes:
    """Change one element somewhere, and adjust the lengths."""
    parts = _elements(data)
    if not parts:
        return random.choice(_CONTENTS)
    # A name is the sixth field of a certificate: that is where to go, mostly.
    at = 0 if depth < 2 else 5 if depth == 2 and len(parts) > 5 else int(random.random() * len(parts))
    tag, content = parts[at]
    choice = int(random.random() * 6) if depth > 2 else 9
    if choice == 0:
        del parts[at]
    elif choice == 1:
        parts[at:at] = [parts[at]] * (1 + int(random.random() * 8))
    elif choice == 2:
        parts[at] = random.choice(_TAGS), content
    elif choice == 3:
        parts[at] = tag, random.choice(_CONTENTS)
    else:
        parts[at] = tag, _reshape_name(content, random, depth + 1) if depth < 7 else random.randbytes(3)
    return b"".join(_der(*part) for part in parts)


NAMES = Target(
    name="names",
    run=_run_name,
    seeds=_name_seeds,
    tokens=_CONTENTS,
    reshape=_reshape_name,
    max_bytes=4096,
    max_memory=8 << 20,
    brief=40_000,
)
