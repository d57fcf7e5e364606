"""The base class of plugin settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class PluginConfig(BaseModel):
    """Base of a plugin's settings: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
