"""The settings of the processes: relays, the core, the control socket."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from receiver.settings.base import Settings

#: Most relays of `auto`. A node without a CPU limit may have hundreds of cores.
MAX_AUTO_RELAYS: Final = 16


class GatewaySettings(Settings):
    """The processes that carry the traffic."""

    relays: Literal["auto"] | Annotated[int, Field(ge=1, le=256)] = Field(
        default="auto",
        description="Number of relay processes, which share the traffic of clients. `auto`: one for each "
        f"core that the container may use, at most {MAX_AUTO_RELAYS}, and at most one for each 32 MiB of "
        "its memory limit.",
    )
    core_nice: int = Field(default=5, ge=0, le=19)
    """By how much the priority of the core process, with telemetry, plugins and REST, is lower than
    that of the relays (nice). A reload applies it to the next core process."""
    control: Path | None = None
    """Unix socket, created with mode 0600, over which `serve --take-over` gets the listening
    sockets from the running version. null: no take-over."""
