"""Describes how clients and listeners secure connections, for any client library."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.testbed.certificates import CertificateFiles

#: Kafka's security protocols.
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

#: The SASL mechanisms that the broker offers, all on each of its SASL listeners.
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

_TOKEN_VALID_FOR_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How a client logs in with SASL.

    Attributes:
        mechanism: The mechanism.
        user: Who it wants to be; of a delegation token, its id.
        password: Its password; of a delegation token, its HMAC in base64; OAUTHBEARER has none.
        delegation_token: Whether it logs in with a delegation token (KIP-48), over SCRAM.
        claim: The claim of an OAUTHBEARER token that names the user.
    """

    mechanism: Mechanism
    user: str
    password: str = ""
    delegation_token: bool = False
    claim: str = "sub"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How a client secures its connections.

    Attributes:
        login: How it logs in; None: not with SASL.
        ca: Whom it trusts, a PEM file; None: it does not speak TLS.
        certificate: What it shows to who asks for a certificate; None: nothing.
    """

    login: Login | None = None
    ca: Path | None = None
    certificate: CertificateFiles | None = None

    @property
    def protocol(self) -> SecurityProtocol:
        """Kafka's word for it."""
        if self.login is None:
            return "PLAINTEXT" if self.ca is None else "SSL"
        return "SASL_PLAINTEXT" if self.ca is None else "SASL_SSL"


def unsecured_token(login: Login) -> str:
    """An OAUTHBEARER token without a signature, valid for an hour: RFC 7515, appendix A.5."""
    now = int(time.time())
    claims = {login.claim: login.user, "iat": now, "exp": now + _TOKEN_VALID_FOR_S}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
