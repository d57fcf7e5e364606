"""Tells what of a broker's own telemetry has no effect behind a sidecar (KIP-714).

A broker may take telemetry itself, with a plugin and client metrics resources of its own. The
sidecar answers telemetry requests in its place, so its plugin gets nothing, and its resources
matter only if the sidecar's subscriptions are kept there.
"""

from __future__ import annotations

from collections.abc import Iterable

from receiver.brokers.listener_broker import KnownBroker
from receiver.brokers.listener_state import ListenerState


def hidden_telemetry(known: KnownBroker) -> str | None:
    """Return what of the broker's telemetry the sidecar hides; None if it is nothing.

    Resources are known only where the sidecar may ask for them.
    """
    hidden, fixes = [], []
    if known.takes_telemetry:
        hidden.append("the broker takes telemetry itself, and its plugin gets nothing from clients here")
        fixes.append("remove the plugin from the broker's metric.reporters")
    if known.unread_resources:
        count = known.unread_resources
        resources = "resource" if count == 1 else "resources"
        hidden.append(f"the broker has {count} client metrics {resources}, which the sidecar does not read")
        fixes.append("set subscriptions.store to kafka, or put them over REST and delete them at the broker")
    return f"{'; '.join(hidden)}: {'; '.join(fixes)}" if hidden else None


def hidden_telemetry_warnings(listeners: Iterable[ListenerState]) -> list[str]:
    """Return what is hidden behind listeners, for ``/readyz``; each problem once."""
    names: dict[str, dict[str, None]] = {}
    for listener in listeners:
        for known in (listener.known, *listener.nodes.values()):
            if (problem := hidden_telemetry(known)) is not None:
                names.setdefault(problem, {})[listener.settings.name] = None
    return [f"behind {', '.join(behind)}: {problem}" for problem, behind in names.items()]
