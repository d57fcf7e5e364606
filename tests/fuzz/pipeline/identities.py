"""Clients of a run, as the broker authenticated them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from receiver.telemetry.identity import ANONYMOUS, Broker, ClientIdentity
from receiver.wire.uuid import Uuid

CLUSTER_ID: Final = "5L6g3nShT-eMCtK--X86sw"
BROKER_IDS: Final = (1, 2)
INNOCENTS: Final = 50
HOSTILES: Final = 60

#: Client ids that a hostile client gives itself: a session keeps any text of up to 512 characters.
_ODD_CLIENT_IDS: Final = (
    "",
    " ",
    "innocent-00 ",
    "innocent-00\0",
    "INNOCENT-00",
    "innocent-00\u200b",
    "'; DROP TABLE series; --",
    "${client_id:raw}",
    "x" * 512,
    "\U0001f600" * 512,
    "\ufffd",
    'a"b\\c\n\t\x7f',
)
_ODD_VERSIONS: Final = ("4.2.0", "unknown", "1.0\n", "0", "9" * 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One client, as the broker's side knows it.

    Attributes:
        client_id: Its client id.
        principal: Its authenticated principal.
        software: Its name and version of KIP-511.
        address: Its source address.
        listener: The listener that it connects to, and that listener's protocol.
        innocent: Whether its totals are in the ledger; every other client is hostile.
    """

    client_id: str
    principal: str
    software: tuple[str, str]
    address: str
    listener: tuple[str, str]
    innocent: bool

    def connection(self, number: int) -> ClientIdentity:
        """Return one of its connections."""
        listener, protocol = self.listener
        name, version = self.software
        return ClientIdentity(
            id=f"c{number}",
            listener=listener,
            security_protocol=protocol,
            source_address=self.address,
            source_port=1024 + number % 60_000,
            since=0.0,
            client_id=self.client_id,
            client_software_name=name,
            client_software_version=version,
            principal=self.principal,
            sasl_mechanism="SCRAM-SHA-256" if protocol.startswith("SASL") else None,
        )

    @property
    def series_labels(self) -> tuple[str | None, ...]:
        """The labels of its series, in the order of :data:`SERIES_LABELS`."""
        return (CLUSTER_ID, *self.software, self.client_id, self.principal)


#: The columns of a series that only the receiver may fill.
SERIES_LABELS: Final = (
    "cluster_id",
    "client_software_name",
    "client_software_version",
    "client_id",
    "principal",
)


def _innocent(number: int) -> Identity:
    return Identity(
        client_id=f"innocent-{number:02d}",
        principal=f"User:innocent-{number % 25:02d}",
        software=("apache-kafka-java", "4.4.0") if number % 3 else ("librdkafka", "2.16.0"),
        address=f"10.1.0.{number + 1}",
        listener=("CLIENT", "SASL_SSL"),
        innocent=True,
    )


def _hostile(number: int) -> Identity:
    odd = _ODD_CLIENT_IDS[number % len(_ODD_CLIENT_IDS)]
    return Identity(
        client_id=odd if number % 2 else f"hostile-{number:02d}",
        principal=ANONYMOUS if number % 3 == 0 else f"User:mallory-{number % 7}",
        software=("raw", _ODD_VERSIONS[number % len(_ODD_VERSIONS)]),
        address=f"2001:db8:{number:x}::1" if number % 4 == 0 else f"10.66.{number}.1",
        listener=("PUBLIC", "PLAINTEXT") if number % 3 == 0 else ("CLIENT", "SASL_SSL"),
        innocent=False,
    )


IDENTITIES: Final = (*map(_innocent, range(INNOCENTS)), *map(_hostile, range(HOSTILES)))


def brokers() -> tuple[Broker, ...]:
    """Return the brokers, each with a sidecar of its own."""
    return tuple(Broker(id=number, cluster_id=CLUSTER_ID) for number in BROKER_IDS)


def instance_id(seed: str, number: int) -> Uuid:
    """Return the id of the run's client instance of this number."""
    return Uuid(hashlib.blake2b(f"{seed} {number}".encode(), digest_size=16).digest())
