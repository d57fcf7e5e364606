"""Whether the address that a broker advertises leads clients to the listener."""

from __future__ import annotations

import pytest

from receiver.brokers.bypass import bypass_problem
from receiver.brokers.listener_broker import KnownBroker
from receiver.settings.listeners import ListenerSettings
from receiver.telemetry.identity import Broker


@pytest.mark.parametrize(
    ("advertised", "configured", "begins"),
    [
        (None, None, None),
        ("broker-1.example:19092", None, None),
        ("broker-1.example:29092", None, "the broker advertises broker-1.example:29092, its own port, so"),
        ("[2001:db8::1]:29092", None, "the broker advertises [2001:db8::1]:29092, its own port, so"),
        ("lb.example:443", None, None),  # a load balancer may map it
        ("lb.example:443", "lb.example:443", None),
        (
            "lb.example:9443",
            "lb.example:443",
            "the broker advertises lb.example:9443, and listeners[].advertised is lb.example:443, so",
        ),
    ],
)
def test_a_bypass_is_told(advertised: str | None, configured: str | None, begins: str | None) -> None:
    listener = ListenerSettings.model_validate(
        {"name": "A", "bind": "0.0.0.0:19092", "upstream": "127.0.0.1:29092", "advertised": configured}
    )
    problem = bypass_problem(listener, KnownBroker(broker=Broker(id=1), advertised=advertised))
    assert (problem is None) == (begins is None)
    if problem is not None:
        assert problem.startswith(begins or "")
        assert "set advertised.listeners to the listener's address" in problem
