"""The settings of the broker behind a listener."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from receiver.settings.base import Settings

#: A node id is an int32 on the wire, and a broker's id is never negative.
_MAX_BROKER_ID = 2_147_483_647


class SecretFileSettings(Settings):
    """A secret in a file, which is read each time it is needed."""

    file: Path
    """File with the secret."""


class BrokerLoginSettings(Settings):
    """The sidecar's own login at a broker with SASL, to ask for its node id.

    Clients log in with their own names. The principal needs the right `DescribeConfigs` on the
    cluster; Kafka 4.4 also answers without it.
    """

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    """SASL mechanism. PLAIN shows the password to whoever answers at the upstream."""
    username: str = Field(min_length=1)
    """Name to log in with."""
    password: SecretFileSettings
    """Password: `{file: PATH}`, read for each login."""

    @field_validator("password", mode="before")
    @classmethod
    def _not_as_text(cls, password: Any) -> Any:
        if isinstance(password, str):
            raise ValueError("a password as text is not taken: write it into a file, and give {file: PATH}")
        return password


class BrokerSettings(Settings):
    """The broker to which a listener forwards."""

    id: Literal["auto"] | Annotated[int, Field(ge=0, le=_MAX_BROKER_ID)] = "auto"
    """Node id of the broker, and the value of the `broker_id` label. `auto`: the sidecar asks the
    broker. A number is checked against the broker's own, and the listener is not ready while they
    differ."""
    cluster_id: str | None = Field(default=None, min_length=1)
    """Id of the cluster, checked in the same way; null: the sidecar asks the broker."""
    login: BrokerLoginSettings | None = None
