"""How many relays `auto` starts."""

from __future__ import annotations

import pytest

from receiver.supervisor.relay_count import auto_relays

MIB = 1 << 20


@pytest.mark.parametrize(
    ("cpus", "memory_bytes", "relays"),
    [
        (1, None, 1),
        (4, None, 4),
        (128, None, 16),
        (128, 768 * MIB, 16),  # the chart's limit
        (128, 256 * MIB, 8),
        (4, 256 * MIB, 4),
        (4, 64 * MIB, 2),
        (4, MIB, 1),
    ],
)
def test_auto_relays(cpus: int, memory_bytes: int | None, relays: int) -> None:
    assert auto_relays(cpus, memory_bytes) == relays
