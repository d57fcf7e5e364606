"""Tells whether clients pass by the sidecar.

Clients bootstrap at any address and then connect to those that Metadata names, which are the
broker's ``advertised.listeners``. If the broker still advertises its own port, clients leave the
sidecar after their first request, and nothing else shows it.
"""

from __future__ import annotations

from receiver.brokers.listener_broker import KnownBroker
from receiver.settings.listeners import ListenerSettings


def bypass_problem(listener: ListenerSettings, known: KnownBroker) -> str | None:
    """Return why clients don't come to a listener.

    None if they do, or if it can't be told.

    A port that is neither the listener's nor the upstream's may be mapped to the listener by a load
    balancer. ``listeners[].advertised`` says what is right then.
    """
    advertised = known.advertised
    if advertised is None or listener.rewrite is not None:
        return None
    fix = "set advertised.listeners to the listener's address, and restart the broker"
    if listener.advertised is not None:
        if advertised == str(listener.advertised):
            return None
        return (
            f"the broker advertises {advertised}, and listeners[].advertised is {listener.advertised}, so "
            f"clients may pass by the sidecar: {fix}, or correct listeners[].advertised"
        )
    port = int(advertised.rpartition(":")[2])
    if port == listener.bind.port or port not in {address.port for address in listener.upstream}:
        return None
    return f"the broker advertises {advertised}, its own port, so clients pass by the sidecar: {fix}"
