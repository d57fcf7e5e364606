"""What the broker of a bridge asks of a client otherwise than this receiver would.

Pure. The broker reads CLIENT_METRICS resources (KIP-714, "Client metrics configuration") and
nothing else, so it does not know what Kafka has no key for. It always asks for deltas
(``ClientMetricsManager``).
"""

from __future__ import annotations

from collections.abc import Iterator

from receiver.store.kafka_format import beyond_kafka
from receiver.telemetry.control.offenders import Demand
from receiver.telemetry.explain import ClientExplanation, Verdict
from receiver.telemetry.identity import Via
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.quirks import Treatment
from receiver.telemetry.subscription import State, Subscription, SubscriptionSet

#: The store whose subscriptions the brokers read too.
_SHARED_STORE = "kafka"


def broker_differences(
    client: ClientInstance,
    found: ClientExplanation,
    every: SubscriptionSet,
    *,
    store: str,
    has_plugins: bool,
    treatment: Treatment,
    demand: Demand,
    interval_factor: int,
) -> list[str]:
    """Return what the broker of a client does otherwise, in one sentence each.

    Nothing for a client that comes by the gateway.

    Args:
        found: What this receiver would ask it for.
        every: All subscriptions.
        store: Where they are kept, as in ``subscriptions.store``.
        has_plugins: Whether a plugin takes metrics.
        treatment: What the gateway does for its software.
        demand: The part of its subscriptions that the gateway would ask it for.
        interval_factor: The factor of back-pressure; 1: none.
    """
    if client.identity.via is not Via.BRIDGE:
        return []
    texts: list[str] = []
    if store == _SHARED_STORE:
        for verdict, subscription in zip(found.verdicts, every.subscriptions, strict=True):
            texts += _unlike(subscription, verdict, client)
    else:
        texts.append(
            f"the broker does not read the store {store}: it has the subscriptions of kafka-client-metrics.sh"
        )
    if not has_plugins:
        texts.append("the broker asks for metrics though no plugin takes them here")
    reported_ms = client.reported_interval_ms
    if reported_ms is not None and reported_ms != found.request.interval_ms:
        texts.append(f"the broker asks for a push every {reported_ms / 1000:g} s")
    if not found.request.delta:
        texts.append("the broker asks for deltas")
    if treatment.reasons:
        texts.append("the broker has no workaround for what is listed as quirks")
    if demand is not Demand.EVERYTHING:
        texts.append("the broker does not ask it for less, though it pushes too much")
    if interval_factor > 1:
        texts.append("the broker does not ask less often while a plugin is behind")
    return texts


def _unlike(subscription: Subscription, verdict: Verdict, client: ClientInstance) -> Iterator[str]:
    """Say that a subscription applies at one of receiver and broker only."""
    beyond = beyond_kafka(subscription)
    name = f"subscription {subscription.name}"
    if verdict.matches and beyond:
        keys = ", ".join(f"match.{condition}" for condition in beyond)
        yield f"{name}: a broker can't read {keys}, so it asks no client for it"
    is_over = verdict.state is State.EXPIRED and subscription.matches(client.identity, client.revealed)
    if is_over and not beyond:
        yield f"{name}: a broker does not know expires_at, so it asks for it until it is deleted"
