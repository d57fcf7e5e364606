"""Clients get ApiVersions v0 to v5 in front of brokers that have fewer versions.

A real broker can't be told to unlearn a version, so this is the testbed's scripted one. What a
client is answered is compared with what the real Kafka 4.4 answers to the same requests, as far as
both can say it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from tests.conformance import answers, requests
from tests.conformance.answers import Reading
from tests.conformance.talk import Talk
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.scripted_broker import (
    API_VERSIONS,
    CLUSTER_ID,
    DESCRIBE_CONFIGS,
    NODE_ID,
    RANGES,
    ScriptedBroker,
)
from tests.testbed.sidecar import Sidecar

#: The latest version of ApiVersions that a broker knows: before KIP-35's throttle time, KIP-511 and
#: KIP-1242.
_AGES = {"v0": (0, 0), "v2": (0, 2), "v3": (0, 3), "v4": (0, 4)}
#: Of the broker six, and of the sidecar 71, 72 and 74, which such a broker lacks.
_NONE = "NONE, 9 keys (18: 0-5, 71: 0-1, 72: 0-1)"
_REBOOTSTRAP = "REBOOTSTRAP_REQUIRED, 0 keys"
_INVALID = "INVALID_REQUEST, 0 keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class OldBroker:
    """A broker that knows ApiVersions up to a version, and a listener of the sidecar for it."""

    age: str
    broker: ScriptedBroker
    sidecar: Sidecar

    @property
    def greatest(self) -> int:
        return _AGES[self.age][1]

    @contextmanager
    def connection(self) -> Iterator[Talk]:
        with Talk(self.sidecar.port(self.age)) as talk:
            yield talk

    def names_received(self) -> set[tuple[str, str]]:
        """Return the software names and versions that the broker got in ApiVersions v3 or later."""
        return {
            _software(request.body[1:])
            for peer in self.broker.peers
            for request in peer.answers.seen
            if request.api_key == API_VERSIONS and 3 <= request.api_version <= self.greatest
        }


def _software(body: bytes) -> tuple[str, str]:
    name_end = body[0]
    version_end = name_end + body[name_end]
    return body[1:name_end].decode(), body[name_end + 1 : version_end].decode()


@pytest.fixture(scope="module")
def all_old() -> Iterator[Mapping[str, OldBroker]]:
    """One sidecar with a listener for each broker."""
    with ExitStack() as running:
        brokers = {
            age: running.enter_context(
                ScriptedBroker(ranges={**RANGES, API_VERSIONS: versions, DESCRIBE_CONFIGS: (1, 3)})
            )
            for age, versions in _AGES.items()
        }
        config = {
            "broker": {"id": NODE_ID},
            "listeners": [
                {
                    "name": age,
                    "bind": f"{LOOPBACK}:{free_port()}",
                    "upstream": f"{LOOPBACK}:{broker.port}",
                }
                for age, broker in brokers.items()
            ],
            "subscriptions": {"store": "sqlite", "path": "./subscriptions.db"},
            "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
            "plugins": [{"type": "console"}],
        }
        sidecar = running.enter_context(Sidecar(config))
        yield {age: OldBroker(age=age, broker=broker, sidecar=sidecar) for age, broker in brokers.items()}


@pytest.fixture(params=_AGES)
def old(request: pytest.FixtureRequest, all_old: Mapping[str, OldBroker]) -> OldBroker:
    return all_old[request.param]


def _ask(
    talk: Talk, version: int, name: str = "old-client", cluster: str | None = None, node: int = -1
) -> str:
    head = requests.header(API_VERSIONS, version, 5, "old-broker", requests.NO_TAGS if version >= 3 else None)
    talk.send(requests.frame(head + requests.api_versions_body(version, name, "1.2.3", cluster, node)))
    return answers.read(talk.receive(), 5, answers.api_versions(version), Reading()).text


@pytest.mark.parametrize("version", range(6))
def test_every_version_is_answered_in_its_own_layout(old: OldBroker, version: int) -> None:
    with old.connection() as talk:
        assert _ask(talk, version) == _NONE


@pytest.mark.parametrize("version", [6, 99, -1])
def test_a_newer_client_falls_back_to_ours(old: OldBroker, version: int) -> None:
    with old.connection() as talk:
        assert _ask(talk, version) == "UNSUPPORTED_VERSION, 1 keys (18: 0-5)"
        assert _ask(talk, 5) == _NONE


@pytest.mark.parametrize(
    ("cluster", "node", "answer"),
    [
        (None, -1, _NONE),
        (CLUSTER_ID, NODE_ID, _NONE),
        (CLUSTER_ID, -1, _INVALID),
        (None, NODE_ID, _INVALID),
        (CLUSTER_ID, 99, _REBOOTSTRAP),
        ("another-clusterAAAAAAA", NODE_ID, _REBOOTSTRAP),
        ("another-clusterAAAAAAA", 99, _REBOOTSTRAP),
        ("", NODE_ID, _REBOOTSTRAP),
        (CLUSTER_ID, -2, _REBOOTSTRAP),
    ],
)
def test_cluster_and_node_are_checked_here(
    old: OldBroker, cluster: str | None, node: int, answer: str
) -> None:
    with old.connection() as talk:
        assert _ask(talk, 5, cluster=cluster, node=node) == answer
        assert _ask(talk, 5, cluster=CLUSTER_ID, node=NODE_ID) == _NONE  # it stays usable


@pytest.mark.parametrize("version", [3, 4, 5])
def test_the_broker_learns_the_software_where_it_can(old: OldBroker, version: int) -> None:
    name = f"client-of-v{version}"
    with old.connection() as talk:
        assert _ask(talk, version, name) == _NONE
    assert ((name, "1.2.3") in old.names_received()) == (old.greatest >= 3)


def test_the_registry_always_knows_the_software(old: OldBroker) -> None:
    with old.connection() as talk:
        assert _ask(talk, 5, "registered") == _NONE
        assert "registered" in old.sidecar.http.get("/v1/connections").raise_for_status().text


def test_a_bad_name_never_reaches_the_broker(old: OldBroker) -> None:
    with old.connection() as talk:
        assert _ask(talk, 3, "bad name") == _INVALID
        assert _ask(talk, 3) == "closed"
    assert "bad name" not in {name for name, _ in old.names_received()}
