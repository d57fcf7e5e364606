"""Settings of the console plugin."""

from __future__ import annotations

from typing import Literal

from receiver.plugin import PluginConfig


class ConsoleConfig(PluginConfig):
    """Settings of the console plugin."""

    format: Literal["line", "json"] = "line"
    """`line`: key=value text for people; `json`: one JSON object a line."""
    metrics: bool = False
    """Also print each data point's name, attributes and value."""
