"""The subscription that dashboards, findings, alerts and the console need, from what they read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from deploy.dashboards.series import series
from receiver.catalogue import CATALOGUE
from receiver.telemetry.signs import RULES
from spark_streaming.watched import WATCHED

PRESET: Final = Path(__file__).parents[2] / "receiver" / "cli" / "presets" / "dashboards.json"
#: Long enough for charts of minutes, and for findings within minutes.
_INTERVAL_MS: Final = 60_000
_PREFIX: Final = "org.apache.kafka."
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.]*[A-Za-z0-9]")


def preset(texts: Iterable[str]) -> str:
    """Return the subscription's document for what these texts, findings and signs read.

    Args:
        texts: The generated dashboards and alert rules, with metrics by their own names, or by
            those in Prometheus.
    """
    words = {word for text in texts for word in _NAME.findall(text)}
    needed = {metric for slot in WATCHED for metric in slot.metrics}
    needed |= {f"{_PREFIX}{metric}" for rule in RULES.values() for metric in rule.metrics}
    needed |= {
        metric.name
        for metric in CATALOGUE
        if metric.name.startswith(_PREFIX)
        and (metric.name in words or series(metric.name.removeprefix(_PREFIX)) in words)
    }
    document = {"metrics": sorted(needed), "interval_ms": _INTERVAL_MS}
    return json.dumps(document, indent=2) + "\n"
