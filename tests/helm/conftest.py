"""Every feature's manifests, rendered once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helm.features import FEATURES, Rendered, render
from tests.testbed.helm import Helm


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm, without a cluster."""
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def all_rendered(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Rendered]:
    """Each feature's manifests."""
    folder = tmp_path_factory.mktemp("charts")
    return {feature: render(helm, feature, folder) for feature in FEATURES}


@pytest.fixture(params=FEATURES, ids=lambda feature: feature.stem)
def rendered(request: pytest.FixtureRequest, all_rendered: dict[Path, Rendered]) -> Rendered:
    """One feature's manifests."""
    return all_rendered[request.param]
