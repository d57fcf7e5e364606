"""A short run of the attacks that once stopped a receiver; ``make attack`` runs all.

Here totals and memory decide, because other tests run at the same time: each request of the
innocent client is answered, and without an error. A wait counts only when nothing moves any more.
That the work of a turn is bounded is tested without a clock, in
``tests/unit/gateway/test_turns.py`` and by the fuzz target ``tls``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from benchmarks.load_generator import fake_broker
from tests.attacks.attacks import ATTACKER, Attack, attacks
from tests.attacks.run import run
from tests.attacks.targets import Target, receiver
from tests.attacks.verdicts import judge
from tests.testbed.certificates import CertificateAuthority

SECONDS: Final = 2.0
MEGABITS: Final = 100.0
LONGEST_MS: Final = 60_000.0

ATTACKS: Final = {attack.name: attack for attack in attacks()}
DEFAULTS: Final = ("key-update", "tls-3-byte", "unknown-key")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The load generator's broker. It is the control too: nobody attacks it directly."""
    with fake_broker(tmp_path_factory.mktemp("broker"), response_bytes=16) as (listen, process):
        yield Target(name="broker", process=process, ports={"plain": listen})


@pytest.fixture(scope="module")
def default_receiver(broker: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A receiver with default settings."""
    with started(ATTACKS[DEFAULTS[0]], broker, tmp_path_factory.mktemp("receiver")) as target:
        yield target


def started(attack: Attack, broker: Target, folder: Path) -> AbstractContextManager[Target]:
    return receiver(attack, broker.ports["plain"], folder, CertificateAuthority().issue().write(folder))


def wrong(attack: Attack, target: Target, broker: Target, folder: Path, *, source: str) -> list[str]:
    outcome = run(attack, target, broker, folder, seconds=SECONDS, megabits=MEGABITS, source=source)
    assert outcome.attacker is not None
    assert outcome.attacker.opened > 0
    assert outcome.longest is not None
    # Where nobody attacks a relay, all its callbacks may be shorter than what is written.
    assert outcome.longest.callback_ms > 0.0 or attack.port == "bridge"
    assert outcome.longest.callback_ms <= outcome.longest.turn_ms
    return judge(attack, outcome, {}, longest_ms=LONGEST_MS)


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_innocent_client_is_served(
    name: str, broker: Target, default_receiver: Target, tmp_path: Path
) -> None:
    # Limits are by source address, so each attack has its own.
    source = f"127.0.0.{10 + DEFAULTS.index(name)}"
    assert wrong(ATTACKS[name], default_receiver, broker, tmp_path, source=source) == []


@pytest.mark.parametrize("name", ["bridge-silent", "bridge-garbage", "bridge-proofs"])
def test_innocent_client_and_bridge_are_served_beside_an_attack_on_the_bridges_port(
    name: str, broker: Target, default_receiver: Target, tmp_path: Path
) -> None:
    assert wrong(ATTACKS[name], default_receiver, broker, tmp_path, source="127.0.0.20") == []


def test_the_innocent_client_is_served_where_every_header_is_read(broker: Target, tmp_path: Path) -> None:
    attack = ATTACKS["translate-all"]
    with started(attack, broker, tmp_path) as target:
        assert wrong(attack, target, broker, tmp_path, source=ATTACKER) == []
