from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.plugins.destinations import (
    Certificates,
    GrpcDestination,
    HttpDestination,
    grpc_destination,
    http_destination,
    make_certificates,
)


@pytest.fixture
def grpc_server() -> Iterator[GrpcDestination]:
    with grpc_destination() as destination:
        yield destination


@pytest.fixture
def http_server() -> Iterator[HttpDestination]:
    with http_destination() as destination:
        yield destination


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))
