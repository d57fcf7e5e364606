"""Tells whether the upstreams of a receiver's listeners are crossed.

With a listener for each broker, Metadata names the address of one listener for each node. If a
listener's upstream is another broker, its clients ask one node for what another has. Clients with
KIP-1242 get REBOOTSTRAP_REQUIRED and bootstrap for ever; others get NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from collections.abc import Sequence

from receiver.brokers.listener_broker import KnownBroker
from receiver.brokers.listener_state import ListenerState


def crossed_upstreams(listeners: Sequence[ListenerState]) -> dict[str, str]:
    """Return what is wrong with each listener's upstream, and how to correct it.

    Only a broker that advertises the port of another listener of the same receiver shows it. The
    port of a load balancer says nothing; ``listeners[].advertised`` says what is right then.
    """
    found = {}
    for listener in listeners:
        others = [
            candidate for candidate in listeners if candidate is not listener and candidate.settings.bind.port
        ]
        problem = _problem(listener, others)
        if problem is not None:
            found[listener.settings.name] = problem
    return found


def _problem(listener: ListenerState, others: Sequence[ListenerState]) -> str | None:
    settings, known = listener.settings, listener.known
    if known.advertised is None or settings.rewrite is not None:
        return None
    if settings.advertised is not None and str(settings.advertised) == known.advertised:
        return None
    port = _port(known)
    if port == settings.bind.port:
        return None
    advertised = next((other for other in others if other.settings.bind.port == port), None)
    if advertised is None or not (known.named_at_port is not None or _differ(known, advertised.known)):
        return None
    node = "of no known id" if known.broker.id is None else f"node {known.broker.id}"
    seen = (
        f"the broker behind listener {settings.name} at {settings.upstream} is {node}, which "
        f"advertises {known.advertised}, the port of listener {advertised.settings.name}, so clients of "
        f"{settings.name} reach the wrong broker"
    )
    right = next((other for other in others if _port(other.known) == settings.bind.port), None)
    if right is not None:
        return f"{seen}: set upstream of listener {settings.name} to {right.settings.upstream}"
    return (
        f"{seen}: set upstream of listener {settings.name} to the broker that advertises port "
        f"{settings.bind.port}, or correct this broker's advertised.listeners"
    )


def _port(known: KnownBroker) -> int | None:
    return None if known.advertised is None else int(known.advertised.rpartition(":")[2])


def _differ(one: KnownBroker, other: KnownBroker) -> bool:
    """Whether two brokers are known, and are not the same."""
    return None not in (one.broker.id, other.broker.id) and one.broker != other.broker
