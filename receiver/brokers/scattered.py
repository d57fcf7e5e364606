"""Tells whether Kafka's tools change the subscriptions of one sidecar alone.

Where a broker keeps no client metrics resources, the sidecar that a tool is connected to answers
it. With the store ``sqlite`` the change then stays in that sidecar's own file.
"""

from __future__ import annotations

from collections.abc import Iterable

from receiver.brokers.listener_broker import KnownBroker
from receiver.brokers.listener_state import ListenerState
from receiver.settings.listeners import ListenerSettings
from receiver.settings.subscriptions import SubscriptionStoreSettings

_FIX = (
    "set subscriptions.store to kafka, or subscriptions.kafka_tools to false and change them at each sidecar"
)


def brokers_elsewhere(listeners: Iterable[tuple[ListenerSettings, KnownBroker]]) -> int:
    """Return how many known brokers of the clusters no listener is in front of."""
    pairs = list(listeners)
    if any(settings.rewrite is not None for settings, _ in pairs):
        return 0
    nodes = {node for _, known in pairs for node in known.nodes}
    behind = [known.broker.id for _, known in pairs]
    # Each of those whose id is not known may be one of the others.
    return max(0, len(nodes.difference(behind)) - behind.count(None))


def scattered_subscriptions(
    store: SubscriptionStoreSettings, listeners: Iterable[ListenerState], *, has_members: bool
) -> str | None:
    """Return why a change by Kafka's tools reaches one sidecar alone.

    None if it does not, or if it can't be told.

    Args:
        store: The settings of the store.
        listeners: All listeners.
        has_members: Whether the configuration names other receivers of the cluster.
    """
    if store.store != "sqlite" or not store.kafka_tools:
        return None
    states = list(listeners)
    brokers = [known for state in states for known in (state.known, *state.nodes.values())]
    if not any(known.keeps_resources is False for known in brokers):
        return None
    if has_members:
        others = "and cluster names other receivers"
    elif brokers_elsewhere((state.settings, state.known) for state in states):
        others = "and the cluster has brokers that are not behind this sidecar"
    else:
        return None
    return (
        f"the store sqlite belongs to this sidecar alone, {others}, so kafka-client-metrics.sh and "
        f"kafka-configs.sh change the subscriptions of the one sidecar that they are connected to: {_FIX}"
    )
