"""Makes certificate authorities, and PEM files for brokers, clients and sidecars."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Elliptic curve P-256, which is made in no time, or RSA with 2,048 bits.
KeyType = Literal["EC", "RSA"]
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_VALID_FOR = datetime.timedelta(days=30)
_CLOCK_SKEW = datetime.timedelta(days=1)
_RSA_BITS = 2048
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """A certificate as PEM files.

    Attributes:
        chain: The certificate, then its intermediates; without the root.
        key: Its private key, PKCS#8, not encrypted.
        keystore: Key and chain in one file: Kafka's ``ssl.keystore.location`` of type PEM.
        ca: The root that signed it: a trust store for whoever meets it.
    """

    chain: Path
    key: Path
    keystore: Path
    ca: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """An issued certificate with its key.

    Attributes:
        x509: The certificate itself.
        chain_pem: The certificate, then its intermediates; without the root.
        key_pem: Its private key, PKCS#8, not encrypted.
        ca_pem: The root that signed it.
    """

    x509: x509.Certificate
    chain_pem: str
    key_pem: str
    ca_pem: str

    def write(self, folder: Path, name: str = "certificate") -> CertificateFiles:
        """Write the PEM files ``{name}.crt``, ``.key``, ``.pem`` and ``-ca.pem`` into ``folder``.

        A file that is there is replaced in one step, the key before the certificate.
        """
        files = CertificateFiles(
            chain=folder / f"{name}.crt",
            key=folder / f"{name}.key",
            keystore=folder / f"{name}.pem",
            ca=folder / f"{name}-ca.pem",
        )
        for file, text in (
            (files.ca, self.ca_pem),
            (files.keystore, self.key_pem + self.chain_pem),
            (files.key, self.key_pem),
            (files.chain, self.chain_pem),
        ):
            _replace(file, text)
        return files


class CertificateAuthority:
    """Signs certificates; a root unless it is made by :meth:`intermediate`.

    Args:
        common_name: Its own name.
    """

    def __init__(self, common_name: str = "Testbed CA") -> None:
        self._key: PrivateKey = ec.generate_private_key(ec.SECP256R1())
        self._x509 = _sign(
            subject=_name(common_name, None),
            key=self._key,
            issuer=None,
            signing_key=self._key,
            not_after=_now() + _VALID_FOR,
            extensions=_authority_extensions(),
        )
        self._chain: tuple[x509.Certificate, ...] = ()
        self._root = self._x509

    @property
    def ca_pem(self) -> str:
        """The root's certificate: what to trust."""
        return _pem(self._root)

    def intermediate(self, common_name: str = "Testbed intermediate CA") -> Self:
        """Return an intermediate authority; the chains it issues include its certificate."""
        made = type(self)(common_name)
        made._x509 = _sign(
            subject=_name(common_name, None),
            key=made._key,
            issuer=self._x509,
            signing_key=self._key,
            not_after=self._x509.not_valid_after_utc,
            extensions=_authority_extensions(),
        )
        made._chain = (made._x509, *self._chain)
        made._root = self._root
        return made

    def issue(
        self,
        *,
        common_name: str = "localhost",
        organization: str | None = None,
        subject: x509.Name | None = None,
        dns_names: Iterable[str] = ("localhost",),
        ip_addresses: Iterable[str] = ("127.0.0.1", "::1"),
        client: bool = False,
        not_after: datetime.datetime | None = None,
        key_type: KeyType = "EC",
    ) -> Certificate:
        """A new certificate with a new key.

        Args:
            common_name: The subject's common name.
            organization: The subject's organization: ``CN=alice,O=Example`` in RFC 2253's order.
            subject: The whole subject instead of both.
            dns_names: Names of a server; a client's certificate has none.
            ip_addresses: Addresses of a server; a client's certificate has none.
            client: Whether it is for a client; else for a server.
            not_after: When it ends; a time that has passed makes an expired one. None: in 30 days.
            key_type: The kind of its key.
        """
        key: PrivateKey = (
            ec.generate_private_key(ec.SECP256R1())
            if key_type == "EC"
            else rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
        )
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.ExtendedKeyUsage([usage]), False),
        ]
        if not client:
            names: list[x509.GeneralName] = [
                *map(x509.DNSName, dns_names),
                *(x509.IPAddress(ipaddress.ip_address(address)) for address in ip_addresses),
            ]
            extensions.append((x509.SubjectAlternativeName(names), False))
        certificate = _sign(
            subject=subject or _name(common_name, organization),
            key=key,
            issuer=self._x509,
            signing_key=self._key,
            not_after=not_after or _now() + _VALID_FOR,
            extensions=extensions,
        )
        return Certificate(
            x509=certificate,
            chain_pem="".join(map(_pem, (certificate, *self._chain))),
            key_pem=key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
            ca_pem=self.ca_pem,
        )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _name(common_name: str, organization: str | None) -> x509.Name:
    # A subject is written from the widest to the narrowest; RFC 2253 shows it the other way round.
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization is not None:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _authority_extensions() -> list[tuple[x509.ExtensionType, bool]]:
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return [(x509.BasicConstraints(ca=True, path_length=None), True), (usage, True)]


def _sign(
    *,
    subject: x509.Name,
    key: PrivateKey,
    issuer: x509.Certificate | None,
    signing_key: PrivateKey,
    not_after: datetime.datetime,
    extensions: list[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(_now(), not_after) - _CLOCK_SKEW)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False
        )
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(signing_key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _replace(file: Path, text: str) -> None:
    new = file.with_name(f".{file.name}.new")
    new.touch(_PRIVATE)
    new.write_text(text)
    new.replace(file)
