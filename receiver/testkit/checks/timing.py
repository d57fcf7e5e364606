"""Judges when a client asks and pushes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from receiver.amounts import count_text, share_text
from receiver.testkit.checks.check import Verdict, failed, passed, untried
from receiver.testkit.recording import ClientRecording, Get, Push

#: Seconds by which a request may be off because of the network and the machine.
SLACK_S: Final = 0.2

_JITTER: Final = (0.5, 1.5)
#: A client may round its timers, so a push at 95 % of its interval is not early.
_EARLY: Final = 0.95
#: So many telemetry requests in a second are a flood.
_FLOOD: Final = 20
#: The interval from which a client with a 32-bit product of milliseconds overflows.
_VERY_LONG_MS: Final = 1_431_656


@dataclass(frozen=True, slots=True)
class _Gap:
    """Two pushes that followed each other, and the interval in seconds."""

    before: Push
    push: Push
    interval: float

    @property
    def seconds(self) -> float:
        return self.push.at - self.before.at


def jitter(client: ClientRecording) -> Verdict:
    """KIP-714: the first push comes after 0.5 to 1.5 intervals."""
    waits = _first_pushes(client)
    if not waits:
        return untried("no push followed a new subscription")
    least, most = _JITTER
    for wait, interval, push in waits:
        if wait < least * interval - SLACK_S or wait - push.late > most * interval + SLACK_S:
            seen = f"{wait:.2f} s after a subscription of {interval:g} s"
            return failed(f"a first push came {seen}, in step {push.step!r}")
    shown = ", ".join(f"{wait / interval:.2f}" for wait, interval, _ in waits[:8])
    return passed(f"first pushes after {shown} intervals")


def random_jitter(client: ClientRecording) -> Verdict:
    """KIP-714: the first push is randomized."""
    shares = [wait / interval for wait, interval, _ in _first_pushes(client)]
    if len(shares) < 4:
        return untried(f"4 first pushes are needed, seen: {len(shares)}")
    spread = max(shares) - min(shares)
    if spread < 0.1:
        count = count_text(len(shares), "first push", "first pushes")
        return failed(f"{count} all came after {min(shares):.2f} to {max(shares):.2f} intervals")
    return passed(f"first pushes came after {min(shares):.2f} to {max(shares):.2f} intervals")


def not_early(client: ClientRecording) -> Verdict:
    """KIP-714: the broker refuses a push before the interval is over."""
    # The first push of a gap may have come before it was read.
    early = [gap for gap in _gaps(client) if gap.seconds + gap.before.late < gap.interval * _EARLY - 0.02]
    return _of_gaps(client, "early", "shortest", min, early)


def not_late(client: ClientRecording) -> Verdict:
    """KIP-714: a client pushes each interval."""
    late = [gap for gap in _gaps(client) if gap.seconds - gap.push.late > 2 * gap.interval + SLACK_S]
    return _of_gaps(client, "late", "longest", max, late)


def _of_gaps(
    client: ClientRecording,
    what: str,
    worst: str,
    choose: Callable[[Iterable[tuple[float, float]]], tuple[float, float]],
    wrong: Sequence[_Gap],
) -> Verdict:
    gaps = _gaps(client)
    if not gaps:
        return untried("no two pushes followed each other under one subscription")
    if wrong:
        seconds, interval = choose((gap.seconds, gap.interval) for gap in wrong)
        seen = f"{seconds:.2f} s after the last, interval {interval:g} s"
        return failed(f"{what}: {share_text(len(wrong), len(gaps), 'push', 'pushes')}, {seen}")
    share, _ = choose((gap.seconds / gap.interval, 0.0) for gap in gaps)
    return passed(f"{count_text(len(gaps), 'push', 'pushes')}, the {worst} gap {share:.2f} intervals")


def follows_subscription(client: ClientRecording) -> Verdict:
    """KIP-714: a client with a subscription pushes."""
    answered = [g for g in client.gets if g.subscription is not None and g.subscription.metrics]
    answered = [g for g in answered if g.answered is not None]
    tried = 0
    for get in answered:
        subscription = get.subscription
        if subscription is None or subscription.interval_ms >= _VERY_LONG_MS:
            continue
        following = client.next_after(get)
        if following is None:
            silent = client.lasted_until - (get.answered or get.at)
            # A client that has closed may have been stopped before its first push.
            if silent > 4 * subscription.interval_s + 1:
                return failed(f"no push in {silent:.1f} s after the subscription of step {get.step!r}")
            continue
        tried += 1
    if not tried:
        return untried("no subscription lasted long enough")
    return passed(f"it followed {count_text(tried, 'subscription')}")


def quiet_without_metrics(client: ClientRecording) -> Verdict:
    """KIP-714: nothing is pushed when no metric is requested."""
    none = [get for get in client.gets if get.subscription is not None and not get.subscription.metrics]
    if not none:
        return untried("no subscription without metrics was answered")
    for get in none:
        following = client.next_after(get)
        if isinstance(following, Push) and not following.terminating:
            return failed("it pushed although no metric was requested")
    return passed(count_text(len(none), "subscription without metrics", "subscriptions without metrics"))


def asks_again(client: ClientRecording) -> Verdict:
    """KIP-714: without requested metrics, a client asks again after the interval."""
    none = [get for get in client.gets if get.subscription is not None and not get.subscription.metrics]
    for get in none:
        following = client.next_after(get)
        subscription = get.subscription
        if subscription is None or (isinstance(following, Push) and following.terminating):
            continue
        until = client.lasted_until if following is None else following.at
        waited = until - (get.answered or get.at)
        interval = subscription.interval_s
        if following is None and waited < 3 * interval + 1:
            continue
        if following is None or waited > 3 * interval + 1:
            return failed(f"no request in {waited:.1f} s, interval {interval:g} s")
        if waited < interval / 2 - SLACK_S:
            return failed(f"asked again after {waited:.2f} s, interval {interval:g} s")
        return passed(f"asked again after {waited:.2f} s, interval {interval:g} s")
    return untried("no subscription without metrics lasted long enough")


def no_flood(client: ClientRecording) -> Verdict:
    """KIP-714: telemetry requests come once an interval."""
    telemetry = [request.at for request in client.telemetry]
    if not telemetry:
        return untried("it sent no telemetry request")
    most = begin = 0
    for end, at in enumerate(telemetry):
        while at - telemetry[begin] > 1:
            begin += 1
        most = max(most, end - begin + 1)
    over = sum(connection.unrecorded for connection in client.connections)
    if most > _FLOOD:
        return failed(f"{most} telemetry requests in a second" + (f", and {over} more" if over else ""))
    return passed(f"at most {most} telemetry requests in a second")


def very_long_interval(client: ClientRecording) -> Verdict:
    """KIP-714: PushIntervalMs is an int32."""
    long = [g for g in client.gets if g.subscription and g.subscription.interval_ms >= _VERY_LONG_MS]
    if not long:
        return untried("no interval of more than 1,431,655 ms was answered")
    get = long[0]
    requests = list(itertools.takewhile(lambda request: not _terminates(request), client.after(get)))
    waited = client.lasted_until - get.at
    if requests:
        return failed(f"{count_text(len(requests), 'request')} in {waited:.1f} s after it was answered")
    if waited < 2:
        return untried("the client ended less than 2 s after it was answered")
    return passed(f"silent for {waited:.0f} s")


def waits_for_answers(client: ClientRecording) -> Verdict:
    """KIP-714: one request at a time."""
    slow = [r for r in client.telemetry if r.answered is not None and r.answered - r.at > 1]
    if not slow:
        return untried("no telemetry request was answered slowly")
    for request in slow:
        following = client.next_after(request)
        if following is not None and request.answered is not None and following.at < request.answered:
            return failed(
                f"it sent the next request {request.answered - following.at:.2f} s before the answer"
            )
    return passed(f"it awaited {count_text(len(slow), 'slow answer')}")


def _terminates(request: Get | Push) -> bool:
    return isinstance(request, Push) and request.terminating


def _first_pushes(client: ClientRecording) -> list[tuple[float, float, Push]]:
    """Return each first push with its wait and interval in seconds, these first."""
    waits = []
    for get in client.gets:
        following = client.next_after(get)
        subscription = get.subscription
        if not isinstance(following, Push) or following.terminating or get.answered is None:
            continue
        if subscription is None or subscription.interval_ms >= _VERY_LONG_MS:
            continue
        if subscription.metrics and following.subscription is subscription:
            waits.append((following.at - get.answered, subscription.interval_s, following))
    return waits


def _gaps(client: ClientRecording) -> list[_Gap]:
    """Return the pushes that followed each other under one subscription."""
    found = []
    telemetry = client.telemetry
    for before, push in itertools.pairwise(telemetry):
        if not isinstance(before, Push) or not isinstance(push, Push) or push.terminating:
            continue
        subscription = before.subscription
        if before.answered is None or before.error or before.throttle_ms or subscription is None:
            continue
        if subscription.interval_ms >= _VERY_LONG_MS:
            continue
        if push.subscription is subscription and before.answered - before.at < 0.5:
            found.append(_Gap(before, push, subscription.interval_s))
    return found
