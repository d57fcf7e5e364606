"""Settings of the console plugin."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from receiver.plugin import PluginConfig


class ConsoleConfig(PluginConfig):
    """Settings of the console plugin."""

    format: Literal["line", "json"] = Field(
        default="line", description="`line`: key=value text for people; `json`: one JSON object a line."
    )
    metrics: bool = Field(
        default=False, description="Also print each data point's name, attributes and value."
    )
