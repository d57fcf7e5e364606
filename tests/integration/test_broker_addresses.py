"""Addresses in responses are replaced as Kafka's own message classes would write them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from receiver.wire import node_endpoints
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.field_walk import FieldWalk
from receiver.wire.named_addresses import CONTROLLER_KEYS, NAMED_AT_END, NAMED_INSIDE, replace_addresses
from tests.testbed import jvm

pytestmark = pytest.mark.full

#: It is a controller's, and names brokers only in the response that it holds.
_ENVELOPE = 58
#: Responses of StreamsGroupHeartbeat and StreamsGroupDescribe name addresses of applications.
_STREAMS_GROUPS = {88, 89}


def _kafka(mode: str, lines: str = "") -> list[list[str]]:
    program = Path(__file__).parent / "BrokerAddresses.java"
    command = jvm.command(str(program), mode)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=120)
    return [line.split(" ") for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def bodies() -> dict[tuple[int, int], tuple[bytes, bytes]]:
    """Return a body with advertised addresses and one with a gateway's, by key and version."""
    return {
        (int(key), int(version)): (bytes.fromhex(advertised), bytes.fromhex(replaced))
        for key, version, advertised, replaced in _kafka("bodies")
    }


def _replace(broker: BrokerAddress) -> tuple[str, int]:
    assert broker.host == f"b-{broker.node_id}.internal"
    assert broker.port == 9092
    return "gateway.example", 29100 + broker.node_id


def _longer(broker: BrokerAddress) -> tuple[str, int]:
    return 5 * "long." + "example", 29100 + broker.node_id


def _shorter(broker: BrokerAddress) -> tuple[str, int]:
    return f"b{broker.node_id}", 1


def test_the_table_has_all_responses_that_name_brokers() -> None:
    named = {(int(key), int(version)) for key, version in _kafka("schemas")}
    others = {(key, version) for key, version in named if key in CONTROLLER_KEYS | _STREAMS_GROUPS}
    assert {key for key, _ in others} == CONTROLLER_KEYS - {_ENVELOPE} | _STREAMS_GROUPS
    assert named - others == NAMED_INSIDE | NAMED_AT_END


def test_whole_bodies_are_kafkas(bodies: dict[tuple[int, int], tuple[bytes, bytes]]) -> None:
    assert bodies.keys() > NAMED_INSIDE
    for key, version in NAMED_INSIDE:
        advertised, replaced = bodies[key, version]
        assert replace_addresses(advertised, key, version, _replace) == replaced, (key, version)


def _walked(body: bytes, key: int, version: int, piece: int) -> int:
    """Return where the fields before the endpoints end, fed in pieces."""
    walk = FieldWalk(node_endpoints.fields_before(key, version), len(body))
    for begin in range(0, len(body), piece):
        walk.feed(body[begin : begin + piece])
        if walk.done:
            break
    assert walk.done
    return walk.offset


@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_ends_are_kafkas(bodies: dict[tuple[int, int], tuple[bytes, bytes]], piece: int) -> None:
    assert bodies.keys() > NAMED_AT_END
    for key, version in NAMED_AT_END:
        advertised, replaced = bodies[key, version]
        at = _walked(advertised, key, version, piece)
        end = node_endpoints.replace_addresses(advertised[at:], key, _replace, same_size=False)
        assert advertised[:at] + end == replaced, (key, version)


def test_kafka_reads_ends_of_the_same_size(bodies: dict[tuple[int, int], tuple[bytes, bytes]]) -> None:
    lines, wanted = [], []
    for key, version in sorted(NAMED_AT_END):
        body, _ = bodies[key, version]
        at = _walked(body, key, version, len(body))
        nodes = (4, 5) if key in (0, 1) else (4,)
        for replace, addresses in (
            (_shorter, "".join(f" {node}=b{node}:1" for node in nodes)),
            (_longer, ""),
        ):
            end = node_endpoints.replace_addresses(body[at:], key, replace, same_size=True)
            assert len(end) == len(body) - at
            assert b"internal" not in end
            lines.append(f"{key} {version} {(body[:at] + end).hex()}")
            wanted.append(f"0 left;{addresses};")
    read = [" ".join(words) for words in _kafka("read", "\n".join(lines) + "\n")]
    assert [line.rpartition(";")[0] + ";" for line in read] == wanted
    assert all(line.rpartition(";")[2].split() for line in read)  # each has a padding
