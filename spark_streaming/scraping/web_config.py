"""TLS and logins of the scrape endpoint, from Prometheus' web configuration file.

The file is the one that Prometheus and its exporters take as ``--web.config.file``. Keys that this
endpoint has no use for are errors, so that no protection is thought to be on.

Source: Prometheus, "HTTPS and authentication".
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from spark_streaming import plain_yaml
from spark_streaming.files import FileError
from spark_streaming.plain_yaml import PlainYamlError

_BCRYPT: Final = re.compile(r"\$2[aby]\$(0[4-9]|1[0-6])\$[./A-Za-z0-9]{53}")

#: Passwords by user, as bcrypt hashes.
BasicAuthUsers = dict[str, str]

_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


class WebConfigError(ValueError):
    """The file can't be used. The message names the file, the key and the reason."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class TlsServerConfig(_Section):
    """The endpoint's certificate and its demands. Paths start at the file's folder."""

    cert_file: str
    key_file: str
    client_ca_file: str | None = None
    client_auth_type: Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"] = (
        "NoClientCert"
    )
    min_version: Literal["TLS12", "TLS13"] = "TLS12"
    max_version: Literal["TLS12", "TLS13"] = "TLS13"

    @model_validator(mode="after")
    def _check_authorities(self) -> TlsServerConfig:
        if (self.client_ca_file is None) != (self.client_auth_type == "NoClientCert"):
            raise ValueError(
                "client_ca_file and a client_auth_type other than NoClientCert go together: set both"
            )
        if self.min_version > self.max_version:
            raise ValueError(f"min_version {self.min_version} is above max_version {self.max_version}")
        return self

    def files(self, folder: Path) -> list[Path]:
        """Return the files that it names."""
        return [folder / name for name in (self.cert_file, self.key_file, self.client_ca_file) if name]

    def context(self, folder: Path) -> ssl.SSLContext:
        """Build the TLS context of the endpoint.

        Raises:
            WebConfigError: A file is missing or invalid.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self.min_version]
        context.maximum_version = _VERSIONS[self.max_version]
        certificate, key = folder / self.cert_file, folder / self.key_file
        try:
            # An encrypted key must fail. Without a password here, OpenSSL asks on the terminal.
            context.load_cert_chain(certificate, key, password="")
        except OSError as error:
            raise WebConfigError(
                f"tls_server_config: cert_file {certificate} and key_file {key}: {error}"
            ) from None
        if self.client_ca_file:
            authorities = folder / self.client_ca_file
            try:
                context.load_verify_locations(authorities)
            except OSError as error:
                raise WebConfigError(f"tls_server_config: client_ca_file {authorities}: {error}") from None
        context.verify_mode = _CLIENT_AUTH[self.client_auth_type]
        return context


class WebConfig(_Section):
    """The content of a web configuration file."""

    tls_server_config: TlsServerConfig | None = None
    basic_auth_users: BasicAuthUsers = Field(default={}, max_length=1_000)

    @field_validator("basic_auth_users")
    @classmethod
    def _check_hashes(cls, users: BasicAuthUsers) -> BasicAuthUsers:
        for user, password in users.items():
            if ":" in user:
                raise ValueError(f"{user!r}: a user's name has no colon")
            if not _BCRYPT.fullmatch(password):
                raise ValueError(
                    f"the password of {user!r} is no bcrypt hash of cost 4 to 16: make it with "
                    f"`htpasswd -nBC 10 {user}`"
                )
        return users


def read(path: Path) -> WebConfig:
    """Read a web configuration file; nothing that it names is opened.

    Raises:
        WebConfigError: The file can't be read, or has an unknown key or a wrong value.
    """
    try:
        return WebConfig.model_validate(plain_yaml.read(path) or {})
    except (FileError, PlainYamlError) as error:
        raise WebConfigError(f"{path}: {error}") from None
    except ValidationError as error:
        raise WebConfigError(f"{path}: {_first_problem(error)}") from None


def _first_problem(error: ValidationError) -> str:
    found = error.errors(include_input=False, include_url=False)[0]
    key = ".".join(map(str, found["loc"]))
    if found["type"] == "extra_forbidden":
        return f"{key}: this endpoint does not have that; it takes {_KEYS}"
    return f"{key}: {found['msg'].removeprefix('Value error, ')}"


_KEYS: Final = ", ".join(
    [*(f"tls_server_config.{name}" for name in TlsServerConfig.model_fields), "basic_auth_users"]
)
