"""Client addresses behind a real load balancer, over IPv4 and IPv6."""

from __future__ import annotations

import contextlib
import shutil
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal

import pytest

from tests.integration.gateway.support import GatewaySidecar, get_subscriptions, read_get
from tests.integration.security.support import INTERVAL_MS, KNOWN, TIMEOUT_S, TOPIC, exports_of
from tests.testbed import network
from tests.testbed.broker import KafkaBroker, Listener
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.network import Host, Interface, Network
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess, wait_until
from tests.testbed.sidecar import config_for

Family = Literal["IPv4", "IPv6"]
Version = Literal["v1", "v2"]

FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")
VERSIONS: tuple[Version, ...] = ("v1", "v2")

#: Addresses of the networks for documentation (RFC 5737, RFC 3849).
SPOOFED = {"IPv4": "203.0.113.7", "IPv6": "2001:db8::7"}


def of(interface: Interface, family: Family) -> str:
    return interface.ipv4 if family == "IPv4" else interface.ipv6


def at(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lan:
    """A client, a load balancer and this machine, each linked to both others.

    Attributes:
        client: The client's host.
        balancer: The load balancer's host.
        client_end: The client's address towards the load balancer.
        service_end: The load balancer's address towards the client.
        balancer_end: The load balancer's address towards this machine.
        behind_end: This machine's address towards the load balancer.
        past_end: The client's address towards this machine, past the load balancer.
        direct_end: This machine's address towards the client.
    """

    client: Host
    balancer: Host
    client_end: Interface
    service_end: Interface
    balancer_end: Interface
    behind_end: Interface
    past_end: Interface
    direct_end: Interface


@pytest.fixture(scope="module")
def lan() -> Iterator[Lan]:
    if reason := network.problem():
        pytest.skip(reason)
    with Network() as wires:
        client, balancer = wires.host("client"), wires.host("balancer")
        client_end, service_end = wires.link(client, balancer)
        behind_end, balancer_end = wires.link(None, balancer)
        direct_end, past_end = wires.link(None, client)
        yield Lan(
            client=client,
            balancer=balancer,
            client_end=client_end,
            service_end=service_end,
            balancer_end=balancer_end,
            behind_end=behind_end,
            past_end=past_end,
            direct_end=direct_end,
        )


@pytest.fixture(scope="module")
def service_ports() -> dict[tuple[Family, Version], int]:
    """The load balancer's ports, by the clients' IP version and the version of PROXY headers."""
    return {(family, version): free_port() for family in FAMILIES for version in VERSIONS}


#: The PROXY protocol version of the address that the broker advertises, by IP version.
ADVERTISED: dict[Family, Version] = {"IPv4": "v1", "IPv6": "v2"}


@pytest.fixture(scope="module")
def far_broker(lan: Lan, service_ports: dict[tuple[Family, Version], int]) -> Iterator[KafkaBroker]:
    """A broker that advertises the load balancer's address."""
    listeners = [
        Listener(
            name=f"LB_{family.upper()}",
            advertised_host=f"[{lan.service_end.ipv6}]" if family == "IPv6" else lan.service_end.ipv4,
            advertised_port=service_ports[family, version],
        )
        for family, version in ADVERTISED.items()
    ]
    with KafkaBroker(listeners=listeners) as broker:
        broker.create_topic(TOPIC)
        yield broker


@pytest.fixture(scope="module")
def behind(lan: Lan, far_broker: KafkaBroker, shared_collector: Collector) -> Iterator[GatewaySidecar]:
    """A sidecar behind the load balancer, which clients can also reach directly."""
    settings = config_for(far_broker, collector=shared_collector)
    settings["listeners"] = [
        {
            "name": f"{name}_{family.upper()}",
            "bind": at(of(end, family), free_port()),
            "upstream": f"{LOOPBACK}:{far_broker.port(f'LB_{family.upper()}')}",
            "proxy_protocol": {"from": [of(lan.balancer_end, family)]},
        }
        for family in FAMILIES
        for name, end in (("LB", lan.behind_end), ("PAST", lan.direct_end))
    ]
    with GatewaySidecar(settings) as sidecar:
        sidecar.put_subscription("proxy", [KNOWN], INTERVAL_MS)
        yield sidecar


@pytest.fixture(scope="module")
def haproxy(
    lan: Lan,
    behind: GatewaySidecar,
    service_ports: dict[tuple[Family, Version], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """A real load balancer, which opens each connection with a PROXY header."""
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not on this machine (Debian: apt-get install haproxy)")
    folder = tmp_path_factory.mktemp("haproxy")
    lines = ["defaults", " mode tcp", " timeout connect 5s", " timeout client 1m", " timeout server 1m"]
    for (family, version), port in service_ports.items():
        sidecar = at(of(lan.behind_end, family), behind.port(f"LB_{family.upper()}"))
        lines += [
            f"listen {family}-{version}",
            f" bind {at(of(lan.service_end, family), port)}",
            f" server sidecar {sidecar} {'send-proxy' if version == 'v1' else 'send-proxy-v2'}",
        ]
    settings = folder / "haproxy.cfg"
    settings.write_text("\n".join(lines) + "\n")
    process = ChildProcess(
        "HAProxy",
        lan.balancer.command(["haproxy", "-db", "-f", settings]),
        log=folder / "haproxy.log",
        cwd=folder,
    )
    with contextlib.ExitStack() as cleaning:
        cleaning.callback(process.kill)

        def listens() -> bool:
            with contextlib.suppress(ConnectionRefusedError):
                lan.client.connect(lan.service_end.ipv4, service_ports["IPv4", "v1"]).close()
                return True
            return False

        process.wait_until_ready(listens, timeout_s=TIMEOUT_S)
        yield


def asks(connection: socket.socket, header: bytes = b"") -> int | None:
    """Ask for subscriptions behind a header; return the error code, None for an end instead."""
    try:
        connection.sendall(header + get_subscriptions())
        with connection.makefile("rb") as stream:
            length = stream.read(4)
            return read_get(stream.read(int.from_bytes(length, "big")))[0] if len(length) == 4 else None
    except ConnectionError:
        return None


def shown(sidecar: GatewaySidecar, listener: str) -> set[tuple[str, int]]:
    """Return the addresses of clients in the sidecar's REST API."""
    return {
        (connection["source_address"], connection["source_port"])
        for connection in sidecar.connections(listener)
    }


def header_of(version: Version, source: str, port: int, destination: str) -> bytes:
    """Make a PROXY header (HAProxy's "The PROXY protocol", sections 2.1 and 2.2)."""
    ours, theirs = ip_address(source), ip_address(destination)
    if version == "v1":
        return f"PROXY TCP{ours.version} {ours} {theirs} {port} 9092\r\n".encode()
    addresses = ours.packed + theirs.packed + struct.pack(">HH", port, 9092)
    family = 0x11 if ours.version == 4 else 0x21
    return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack(">BBH", 0x21, family, len(addresses)) + addresses


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("haproxy")
def test_a_client_behind_a_load_balancer_is_known_by_its_own_address(
    lan: Lan,
    behind: GatewaySidecar,
    service_ports: dict[tuple[Family, Version], int],
    family: Family,
    version: Version,
) -> None:
    port = service_ports[family, version]
    with lan.client.connect(of(lan.service_end, family), port) as connection:
        assert asks(connection) == 0
        own = of(lan.client_end, family), int(connection.getsockname()[1])
        assert own in shown(behind, f"LB_{family.upper()}")


@pytest.mark.parametrize(
    ("kind", "family"), [(LibrdkafkaClient, "IPv4"), (JavaClient, "IPv6"), (FranzClient, "IPv6")]
)
@pytest.mark.usefixtures("haproxy")
def test_a_clients_own_address_arrives_with_its_metrics(
    lan: Lan,
    behind: GatewaySidecar,
    shared_collector: Collector,
    service_ports: dict[tuple[Family, Version], int],
    kind: type[Client],
    family: Family,
) -> None:
    client_id = f"balanced-{kind.language}"
    with kind(
        Mode.PRODUCER,
        bootstrap=at(of(lan.service_end, family), service_ports[family, ADVERTISED[family]]),
        topic=TOPIC,
        client_id=client_id,
        host=lan.client,
    ) as client:
        client.wait_for_records(5)
        exports = shared_collector.wait_for(
            lambda exports: bool(exports_of(exports, client_id)), timeout_s=TIMEOUT_S, what=f"{client_id}'s"
        )
    for export in exports_of(exports, client_id):
        assert export.resource["client_source_address"] == of(lan.client_end, family)
        assert export.resource["listener"] == f"LB_{family.upper()}"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_header_from_the_load_balancer_is_believed(
    lan: Lan, behind: GatewaySidecar, family: Family, version: Version
) -> None:
    listener, here = f"LB_{family.upper()}", of(lan.behind_end, family)
    with lan.balancer.connect(here, behind.port(listener)) as connection:
        assert asks(connection, header_of(version, SPOOFED[family], 4711, here)) == 0
        assert (SPOOFED[family], 4711) in shown(behind, listener)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_header_from_elsewhere_is_refused(
    lan: Lan, behind: GatewaySidecar, family: Family, version: Version
) -> None:
    listener, here = f"PAST_{family.upper()}", of(lan.direct_end, family)
    with lan.client.connect(here, behind.port(listener)) as connection:
        assert asks(connection, header_of(version, SPOOFED[family], 4711, here)) is None
    assert SPOOFED[family] not in {address for address, _ in shown(behind, listener)}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_direct_connection_needs_no_header(lan: Lan, behind: GatewaySidecar, family: Family) -> None:
    listener = f"PAST_{family.upper()}"
    with lan.client.connect(of(lan.direct_end, family), behind.port(listener)) as connection:
        assert asks(connection) == 0
        assert (of(lan.past_end, family), int(connection.getsockname()[1])) in shown(behind, listener)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_load_balancer_must_send_a_header(lan: Lan, behind: GatewaySidecar, family: Family) -> None:
    listener = f"LB_{family.upper()}"
    with lan.balancer.connect(of(lan.behind_end, family), behind.port(listener)) as connection:
        assert asks(connection) is None


@pytest.mark.parametrize(
    "header", [b"PROXY UNKNOWN\r\n", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"], ids=["v1 UNKNOWN", "v2 LOCAL"]
)
def test_the_load_balancers_own_connection_has_its_address(
    lan: Lan, behind: GatewaySidecar, header: bytes
) -> None:
    with lan.balancer.connect(lan.behind_end.ipv4, behind.port("LB_IPV4")) as connection:
        assert asks(connection, header) == 0
        assert (lan.balancer_end.ipv4, int(connection.getsockname()[1])) in shown(behind, "LB_IPV4")


def test_a_header_may_come_byte_by_byte(lan: Lan, behind: GatewaySidecar) -> None:
    header = header_of("v2", SPOOFED["IPv6"], 4712, lan.behind_end.ipv6)
    with lan.balancer.connect(lan.behind_end.ipv6, behind.port("LB_IPV6")) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in header:
            connection.sendall(bytes([byte]))
        assert asks(connection) == 0
        wait_until(
            lambda: (SPOOFED["IPv6"], 4712) in shown(behind, "LB_IPV6"),
            timeout_s=TIMEOUT_S,
            what="the client's address",
        )
