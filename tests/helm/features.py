"""Renders the chart with each feature's values, also inside a broker's chart."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.testbed.helm import CHART, CI_VALUES, Helm, Manifest, parse

#: A chart that has this one as a dependency.
BROKER_CHART: Final = Path(__file__).parent / "broker-chart"
#: Files of values, and a folder of a chart.
FEATURES: Final = (*CI_VALUES, BROKER_CHART)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The manifests of a feature.

    Attributes:
        name: The name of its file.
        text: The manifests as Helm prints them.
        manifests: The same, parsed.
    """

    name: str
    text: str
    manifests: Sequence[Manifest]

    @property
    def templates(self) -> set[str]:
        """Names of this chart's templates that made something."""
        return set(re.findall(rf"^# Source: {CHART.name}/templates/(\S+)$", self.text, re.MULTILINE))


def chart_of(feature: Path, folder: Path) -> tuple[Path, Path]:
    """Return a feature's chart and values file; ``folder`` receives a broker's chart."""
    if feature != BROKER_CHART:
        return CHART, feature
    chart = folder / BROKER_CHART.name
    if not chart.exists():
        shutil.copytree(BROKER_CHART, chart)
        shutil.copytree(CHART, chart / "charts" / CHART.name)
    return chart, chart / "values.yaml"


def render(helm: Helm, feature: Path, folder: Path, *arguments: str) -> Rendered:
    """A feature's manifests.

    Raises:
        HelmError: The values or the templates are wrong.
    """
    chart, values = chart_of(feature, folder)
    text = helm.template(values, *arguments, chart=chart)
    return Rendered(name=feature.name, text=text, manifests=parse(text))
