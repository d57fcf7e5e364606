"""The settings of the broker behind a listener."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from receiver.settings.base import Settings

__all__ = ["BrokerSettings"]

#: A node id is an int32 on the wire, and a broker's id is never negative.
_MAX_BROKER_ID = 2_147_483_647


class BrokerSettings(Settings):
    """The broker to which a listener forwards."""

    id: Literal["auto"] | Annotated[int, Field(ge=0, le=_MAX_BROKER_ID)] = Field(
        default="auto",
        description="Node id of the broker, and the value of the `broker_id` label. `auto`: the sidecar asks "
        "the broker. A number is checked against the broker's own, and the listener is not ready while they "
        "differ.",
    )
    cluster_id: str | None = Field(
        default=None,
        min_length=1,
        description="Id of the cluster, checked in the same way; null: the sidecar asks the broker.",
    )
