"""Owns which files are generated, and how they are written: the same bytes for the same code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.dashboards.fleet import fleet
from deploy.dashboards.producers import producers

__all__ = ["CHART", "files", "write"]

CHART: Final = Path(__file__).parents[1] / "helm" / "kafka-client-telemetry"
_DASHBOARDS: Final = {"fleet": fleet, "producers": producers}


def files() -> Iterator[tuple[Path, str]]:
    """Each file, as a path below the chart's folder, with what belongs into it."""
    for name, build in _DASHBOARDS.items():
        text = JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False).encode(build().build())
        yield (
            Path("dashboards") / f"{name}.json",
            json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n",
        )


def write() -> None:
    """Write all of them."""
    for path, text in files():
        target = CHART / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
