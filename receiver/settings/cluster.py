"""Settings of the other receivers of the cluster, for answers about all of them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema, field_validator

from receiver.settings.base import KeyMistakeError, Settings
from receiver.settings.hostport import HostPort
from receiver.settings.listeners import UpstreamTlsSettings
from receiver.settings.rest_url import REST_URL_SCHEMA, checked_rest_url

#: Most members, because a request asks all of them at once.
MAX_MEMBERS: Final = 64

DNS_SCHEME: Final = "dns"

_EXPECTED: Final = "expected the URL of a receiver's REST API, for example https://127.0.0.1:8642"
_EXPECTED_DNS: Final = "expected dns://NAME:PORT, or a list of URLs, for example [https://127.0.0.1:8642]"


class AnswerScope(StrEnum):
    """For whom a receiver answers: for itself, or for all receivers of the cluster."""

    RECEIVER = "receiver"
    CLUSTER = "cluster"


def _checked_dns(text: str) -> str:
    scheme, mark, address = text.partition("://")
    if scheme != DNS_SCHEME or not mark:
        raise ValueError(_EXPECTED_DNS)
    try:
        parsed = HostPort.parse(address)
    except ValueError as error:
        raise ValueError(f"{error}; {_EXPECTED_DNS}") from None
    if not parsed.port:
        raise ValueError(f"the port must not be 0; {_EXPECTED_DNS}")
    return f"{DNS_SCHEME}://{parsed}"


# The forms are for the JSON schema only; the validator checks them.
_Url = Annotated[str, WithJsonSchema(REST_URL_SCHEMA)]
_Dns = Annotated[str, WithJsonSchema({"type": "string", "pattern": "^dns://.+:[0-9]{1,5}$"})]


class ClusterTokenSettings(Settings):
    """The token that this receiver shows to the members."""

    file: Path
    """File with one token, which is in the members' `rest.tokens` with the role `viewer`. It is
    read again when it changes."""


class ClusterTlsSettings(UpstreamTlsSettings):
    """TLS of connections to the members. The files are read again when they change."""

    ca_file: Path | None = None
    """PEM file with the CA certificates that may sign the members' certificates; null: the system's
    CAs."""
    cert_file: Path | None = None
    """PEM file with the certificate to show to the members; null: none."""
    server_name: str | None = Field(default=None, min_length=1)
    """Host name that the members' certificates must have; null: the host of the URL, or the NAME of
    `dns://NAME:PORT`."""


class ClusterSettings(Settings):
    """The receivers of the same cluster, so that each of them can answer for all."""

    members: tuple[_Url, ...] | _Dns = Field(
        description=f"URLs of the receivers' REST APIs, at most {MAX_MEMBERS}; or `dns://NAME:PORT`: one at "
        "each address of the name, by https if `tls` is given. This receiver may be among them, so that "
        "all have the same list."
    )
    token: ClusterTokenSettings | None = None
    """The token that this receiver shows to the members; null: none."""
    tls: ClusterTlsSettings | None = None
    """TLS towards members with `https`; null: the system's CAs, no certificate."""
    connect_timeout_ms: int = Field(default=200, ge=10, le=10_000)
    """Milliseconds to connect to a member, and for its TLS."""
    timeout_ms: int = Field(default=2000, ge=10, le=20_000)
    """Milliseconds for a member's whole answer."""

    @field_validator("members", mode="before")
    @classmethod
    def _checked_members(cls, members: Any) -> Any:
        # Not of the types, because a mistake would be reported for each member of the union.
        if isinstance(members, str):
            return _checked_dns(members)
        if not isinstance(members, list | tuple):
            raise ValueError(_EXPECTED_DNS)
        if not members:
            raise ValueError("required: the URL of one receiver at least; or omit `cluster`")
        if len(members) > MAX_MEMBERS:
            raise ValueError(f"{len(members)} members are more than {MAX_MEMBERS}")
        urls: list[str] = []
        for index, member in enumerate(members):
            try:
                url = checked_rest_url(member, _EXPECTED, "cluster.token")
            except ValueError as error:
                below = error.loc if isinstance(error, KeyMistakeError) else ()
                raise KeyMistakeError(str(error), index, *below) from None
            if url in urls:
                raise KeyMistakeError("the same URL is given twice: omit one of them", index)
            urls.append(url)
        return tuple(urls)
