"""A supervisor that asks for a pong every five seconds lives; one that is silent for long hangs."""

from __future__ import annotations

from receiver.core.supervision import Supervision


def test_a_silent_supervisor_hangs_until_it_asks_again() -> None:
    supervision = Supervision(1000.0)
    assert not supervision.hangs(1060.0)
    assert supervision.hangs(1060.1)
    supervision.pinged(1061.0)
    assert not supervision.hangs(1121.0)
    assert supervision.hangs(1121.1)
