"""Writes the files that are generated from values.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deploy.chart.readme import with_table
from deploy.chart.schema import schema
from deploy.chart.values import parse

CHART: Final = Path(__file__).parents[1] / "helm" / "kafka-client-telemetry"


def files() -> Iterator[tuple[str, str]]:
    """Yield each file's name in the chart's folder, and its content."""
    values = parse((CHART / "values.yaml").read_text("utf-8"))
    yield "values.schema.json", json.dumps(schema(values), indent=1, ensure_ascii=False) + "\n"
    yield "README.md", with_table((CHART / "README.md").read_text("utf-8"), values)


def write() -> None:
    """Write all of them."""
    for name, text in files():
        (CHART / name).write_text(text, encoding="utf-8")
