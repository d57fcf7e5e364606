"""One broker and one sidecar with many listeners, shared by these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.gateway.support import GatewaySidecar
from tests.integration.security.support import (
    BROKER_LISTENERS,
    INTERVAL_MS,
    KNOWN,
    MISCONFIGURED,
    TOPIC,
    SidecarFiles,
    sidecar_listeners,
)
from tests.testbed.broker import KafkaBroker
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.testbed.collector import Collector
from tests.testbed.ports import free_port
from tests.testbed.sidecar import config_for


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the certificates."""
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="package")
def authority() -> CertificateAuthority:
    """The CA of clients and of the sidecar's listeners."""
    return CertificateAuthority("Clients' CA")


@pytest.fixture(scope="package")
def broker_authority() -> CertificateAuthority:
    """The CA of the broker and of its client, the sidecar."""
    return CertificateAuthority("Broker's CA")


@pytest.fixture(scope="package")
def files(
    authority: CertificateAuthority, broker_authority: CertificateAuthority, folder: Path
) -> SidecarFiles:
    return SidecarFiles(
        server=authority.intermediate().issue(common_name="sidecar").write(folder, "server"),
        upstream=broker_authority.issue(common_name="sidecar", client=True).write(folder, "upstream"),
    )


@pytest.fixture(scope="package")
def rotating(
    authority: CertificateAuthority, broker_authority: CertificateAuthority, folder: Path
) -> SidecarFiles:
    """Files that tests may change; each test leaves working files."""
    return SidecarFiles(
        server=authority.issue().write(folder, "rotating-server"),
        upstream=broker_authority.issue(client=True).write(folder, "rotating-upstream"),
    )


@pytest.fixture(scope="package")
def alice(authority: CertificateAuthority, folder: Path) -> CertificateFiles:
    """A client's certificate."""
    return authority.issue(common_name="alice", organization="Example", client=True).write(folder, "alice")


@pytest.fixture(scope="package")
def secured_broker(broker_authority: CertificateAuthority, folder: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(
        advertised_client_port=free_port(),
        listeners=BROKER_LISTENERS,
        certificate=broker_authority.issue(common_name="broker").write(folder, "broker"),
    ) as broker:
        broker.create_topic(TOPIC)
        yield broker


@pytest.fixture(scope="package")
def secured(
    secured_broker: KafkaBroker, files: SidecarFiles, rotating: SidecarFiles, shared_collector: Collector
) -> Iterator[GatewaySidecar]:
    """A sidecar in front of the broker that asks every client for one metric."""
    settings = config_for(
        secured_broker, collector=shared_collector, listeners=sidecar_listeners(files, rotating)
    )
    settings["log"] = {"requests": True}
    settings["listeners"] = [
        setting for setting in settings["listeners"] if setting["name"] not in MISCONFIGURED
    ]
    with GatewaySidecar(settings) as sidecar:
        sidecar.put_subscription("security", [KNOWN], INTERVAL_MS)
        yield sidecar
