"""What works and should be otherwise, one sentence each, for ``/readyz``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from receiver.amounts import duration_text
from receiver.brokers.bypass import bypass_problem
from receiver.brokers.listener_state import ListenerState
from receiver.host.delivery.statistics import PluginStatistics
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.prefixes import misspelt
from receiver.telemetry.subscription import State, SubscriptionSet

#: A certificate that ends within so many seconds is due, as for the alert.
CERTIFICATE_DUE_S: Final = 14 * 86_400.0

#: Data points are aggregated by minutes, so smaller differences of clocks do no harm.
_MAX_SKEW_S: Final = 60.0


def bypass_warnings(listeners: Iterable[ListenerState]) -> Iterator[str]:
    """Yield why clients pass by the receiver."""
    for listener in listeners:
        problem = bypass_problem(listener.settings, listener.known)
        if problem is not None:
            yield f"listener {listener.settings.name}: {problem}"


def certificate_warnings(certificates: Iterable[tuple[str, str, float]], now: datetime) -> Iterator[str]:
    """Yield which certificates have expired or will soon.

    Args:
        certificates: Listener, side and expiry in seconds since the epoch of each.
        now: The time, with a time zone.
    """
    for listener, side, expires in certificates:
        left_s = expires - now.timestamp()
        if left_s >= CERTIFICATE_DUE_S:
            continue
        end = datetime.fromtimestamp(int(expires), UTC).strftime("%Y-%m-%d %H:%M UTC")
        state = "has expired" if left_s <= 0 else f"expires in {duration_text(left_s)}"
        where = f"of {listener} for the broker" if side == "upstream" else f"of {listener}"
        yield f"the certificate {where} {state} ({end}): replace its files, which are read at once"


def subscription_warnings(
    subscriptions: SubscriptionSet, now: datetime, *, has_plugins: bool
) -> Iterator[str]:
    """Yield that no client pushes: no plugin is there, or no subscription applies."""
    if not has_plugins:
        yield "there is no plugin, so clients are asked for nothing: add one to `plugins`, and send SIGHUP"
    elif not any(subscription.state(now) is State.ACTIVE for subscription in subscriptions.subscriptions):
        none = "no subscription is active" if subscriptions.subscriptions else "there is no subscription"
        yield (
            f"{none}, so clients push nothing: put one, for example "
            "`kafka-telemetry subscriptions put all --metric '*'`"
        )


def prefix_warnings(
    subscriptions: SubscriptionSet, instances: Iterable[ClientInstance], seen: Iterable[str]
) -> Iterator[str]:
    """Yield which subscriptions get nothing, as :func:`misspelt`."""
    for name, problem in misspelt(subscriptions, instances, seen).items():
        yield f"subscription {name}: {problem}"


def clock_warnings(ahead_s: float | None) -> Iterator[str]:
    """Yield that clients' clocks are not this machine's.

    ``ahead_s`` is by how many seconds they are ahead; None: unknown.
    """
    if ahead_s is not None and abs(ahead_s) > _MAX_SKEW_S:
        direction = "ahead of" if ahead_s > 0 else "behind"
        yield (
            f"the clocks of most clients are {duration_text(abs(ahead_s))} {direction} this machine's: "
            "synchronise them (NTP), because metrics get their times"
        )


def store_warnings(problem: str | None, known: bool) -> Iterator[str]:  # noqa: FBT001 -- as in the status
    """Yield why the store of subscriptions can't be used."""
    if problem is not None and known:
        yield f"the last known subscriptions stay in force: {problem}"
    elif problem is not None:
        yield f"no subscriptions are known yet, clients push nothing and ask again soon: {problem}"


def plugin_warnings(plugins: Iterable[PluginStatistics]) -> Iterator[str]:
    """Yield which destinations take no pushes, and how much waits."""
    for plugin in plugins:
        if plugin.backlog.away_s:
            away = duration_text(plugin.backlog.away_s)
            yield f"plugin {plugin.name} has delivered nothing for {away}: {plugin.backlog}"
