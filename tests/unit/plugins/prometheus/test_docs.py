"""The documentation says what the plugin does."""

from __future__ import annotations

from plugins.prometheus.config import DEFAULT_RESOURCE_LABELS
from tests.unit.plugins.prometheus.name_table import BEGIN, END, PAGE, page_with_table


def test_the_names_are_those_that_the_plugin_makes() -> None:
    page = PAGE.read_text()
    assert page.count(BEGIN) == page.count(END) == 1
    assert page == page_with_table(page), "run python -m tests.unit.plugins.prometheus.name_table"


def test_every_default_label_is_named() -> None:
    page = PAGE.read_text()
    assert [name for name in DEFAULT_RESOURCE_LABELS if f"`{name}`" not in page] == []
