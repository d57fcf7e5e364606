"""Every feature's manifests, rendered once a session."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testbed.helm import CHART, CI_VALUES, Helm, Manifest, parse

#: A chart that has this one as a dependency.
BROKER_CHART = Path(__file__).parent / "broker-chart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The chart with the values of one file.

    Attributes:
        name: The file's name.
        text: The manifests as Helm prints them.
        manifests: The same, parsed.
    """

    name: str
    text: str
    manifests: Sequence[Manifest]

    @property
    def templates(self) -> set[str]:
        """Names of the templates that made something."""
        return set(re.findall(r"^# Source: [^/]+/templates/(\S+)$", self.text, re.MULTILINE))


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm, without a cluster."""
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def all_rendered(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Rendered]:
    """Each feature's manifests, by its file; and a broker chart's, with the sidecar in it, by its folder."""
    broker_chart = tmp_path_factory.mktemp("chart") / BROKER_CHART.name
    shutil.copytree(BROKER_CHART, broker_chart)
    shutil.copytree(CHART, broker_chart / "charts" / CHART.name)
    texts = {values: helm.template(values) for values in CI_VALUES}
    texts[BROKER_CHART] = helm.template({}, chart=broker_chart)
    return {
        source: Rendered(name=source.name, text=text, manifests=parse(text)) for source, text in texts.items()
    }


@pytest.fixture(params=(*CI_VALUES, BROKER_CHART), ids=lambda source: source.stem)
def rendered(request: pytest.FixtureRequest, all_rendered: dict[Path, Rendered]) -> Rendered:
    """One feature's manifests."""
    return all_rendered[request.param]
