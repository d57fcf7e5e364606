"""The documentation names the plugin's default labels."""

from __future__ import annotations

from pathlib import Path

from plugins.prometheus.config import DEFAULT_RESOURCE_LABELS

PAGE = Path(__file__).parents[4] / "docs" / "prometheus.md"


def test_every_default_label_is_named() -> None:
    page = PAGE.read_text()
    assert [name for name in DEFAULT_RESOURCE_LABELS if f"`{name}`" not in page] == []
