"""One API server for all tests, with the chart's custom resources; a namespace for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helm.features import FEATURES
from tests.testbed.helm import Helm
from tests.testbed.kubernetes import RESTRICTED, ApiServer, Etcd

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[ApiServer]:
    """The API server."""
    with Etcd() as etcd, ApiServer(etcd) as started:
        started.register_custom_resources()
        yield started


@pytest.fixture(scope="session")
def helm(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm, with every right there."""
    return Helm(tmp_path_factory.mktemp("helm"), server.kubeconfig)


@pytest.fixture
def namespace(server: ApiServer) -> Iterator[str]:
    """A namespace that admits pods within the restricted pod security standard only."""
    name = f"telemetry-{next(_numbers)}"
    server.make_namespace(name, RESTRICTED)
    yield name
    # A port of the nodes is one Service's alone, and no controller empties a namespace.
    server.http.delete(f"/api/v1/namespaces/{name}/services").raise_for_status()


@pytest.fixture(params=FEATURES, ids=lambda feature: feature.stem)
def feature(request: pytest.FixtureRequest) -> Path:
    """One of the chart's features."""
    chosen: Path = request.param
    return chosen
