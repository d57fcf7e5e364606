"""benchmarks/scaling.md shows what the kept measurement comes to, and nothing typed by hand."""

from __future__ import annotations

import json

from benchmarks.scaling_report import KEPT, PAGE, page


def test_the_page_shows_the_kept_measurement() -> None:
    assert f"```text\n{page(json.loads(KEPT.read_text()))}\n```" in PAGE.read_text()
