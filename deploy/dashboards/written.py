"""Writes the generated dashboards and alert rules: the same bytes for the same code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.dashboards.consumers import consumers
from deploy.dashboards.fleet import fleet
from deploy.dashboards.mixin import mixin
from deploy.dashboards.on_prometheus import (
    consumers_on_prometheus,
    fleet_on_prometheus,
    one_client_on_prometheus,
    producers_on_prometheus,
    topics_and_groups_on_prometheus,
)
from deploy.dashboards.one_client import one_client
from deploy.dashboards.preset import PRESET, preset
from deploy.dashboards.producers import producers
from deploy.dashboards.prometheus_rules import prometheus_rules
from deploy.dashboards.receiver import receiver
from deploy.dashboards.recording_rules import recording_rules
from deploy.dashboards.rollup_alerts import grafana_rules
from deploy.dashboards.topics_and_groups import topics_and_groups
from deploy.dashboards.traffic import traffic
from deploy.dashboards.versions import versions

CHART: Final = Path(__file__).parents[1] / "helm" / "kafka-client-telemetry"
#: The preset for the chart's value ``subscriptions``, because Helm reads no file outside the chart.
CHART_PRESET: Final = Path("presets") / PRESET.name
_RULES: Final = {
    "grafana-rules": grafana_rules,
    "prometheus-rules": prometheus_rules,
    "prometheus-recording-rules": recording_rules,
}
_HEAD: Final = "# Made by `python -m deploy.dashboards`; change deploy/dashboards, not it.\n"
_DASHBOARDS: Final = {
    "fleet": fleet,
    "producers": producers,
    "consumers": consumers,
    "one-client": one_client,
    "topics-and-groups": topics_and_groups,
    "versions": versions,
    "receiver": receiver,
    "traffic": traffic,
    "prometheus-fleet": fleet_on_prometheus,
    "prometheus-producers": producers_on_prometheus,
    "prometheus-consumers": consumers_on_prometheus,
    "prometheus-one-client": one_client_on_prometheus,
    "prometheus-topics-and-groups": topics_and_groups_on_prometheus,
}


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file's path below the chart's folder, and its content."""
    for name, build in _DASHBOARDS.items():
        text = JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False).encode(build().build())
        yield (
            Path("dashboards") / f"{name}.json",
            json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n",
        )
    for name, rules in _RULES.items():
        text = yaml.safe_dump(rules(), sort_keys=False, allow_unicode=True, width=110)
        yield Path("alerts") / f"{name}.yaml", _HEAD + text
    yield Path("mixin.libsonnet"), mixin(_DASHBOARDS)


def write() -> None:
    """Write all of them, and the subscription that they need."""
    made = list(files())
    asked = preset(text for _, text in made)
    PRESET.write_text(asked, encoding="utf-8")
    for path, text in [*made, (CHART_PRESET, asked)]:
        target = CHART / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
