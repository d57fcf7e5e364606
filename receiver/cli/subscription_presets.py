"""Subscriptions that come with the receiver, which ``put --preset`` names."""

from __future__ import annotations

import json
from enum import StrEnum
from importlib.resources import files
from typing import Any


class Preset(StrEnum):
    """A subscription that comes with the receiver."""

    DASHBOARDS = "dashboards"


def read_preset(preset: Preset) -> dict[str, Any]:
    """Return the document of a preset: ``metrics`` and ``interval_ms``."""
    text = (files("receiver.cli") / "presets" / f"{preset}.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
