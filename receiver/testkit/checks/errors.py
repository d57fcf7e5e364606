"""Judges what a client does after errors and losses, and at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from receiver.amounts import count_text, share_text
from receiver.testkit.checks.check import Verdict, failed, passed, untried
from receiver.testkit.checks.timing import SLACK_S
from receiver.testkit.recording import CLIENT, KIT, ClientRecording, Connection, Get, Push, Request
from receiver.wire.error_codes import ErrorCode, error_name

#: Seconds within which *immediately* is.
_AT_ONCE_S: Final = 0.5


def asks_after(code: ErrorCode) -> Callable[[ClientRecording], Verdict]:
    """KIP-714, "Error handling": after some errors a client asks again."""

    def judge(client: ClientRecording) -> Verdict:
        refused = _refused(client, code)
        tried = 0
        for push in refused:
            following = client.next_after(push)
            answered = push.answered or push.at
            interval = push.subscription.interval_s if push.subscription else 1.0
            if following is None:
                if client.lasted_until - answered > 4 * interval + 1:
                    return failed(f"no request after {code.name}")
            elif isinstance(following, Get):
                tried += 1
            elif not following.terminating:
                return failed(f"it pushed again after {code.name} without asking")
        if not tried:
            return untried(f"no push was answered {code.name} in the middle of the client's life")
        return passed(f"asked after {tried} such answers")

    return judge


def asks_at_once(client: ClientRecording) -> Verdict:
    """KIP-714, "Error handling": after these errors a client asks immediately."""
    waits = []
    for code in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
        for push in _refused(client, code):
            following = client.next_after(push)
            if isinstance(following, Get) and push.answered is not None:
                waits.append((following.earliest - push.answered, code.name))
    if not waits:
        return untried("no such answer in the middle of the client's life")
    late = [(wait, name) for wait, name in waits if wait > _AT_ONCE_S]
    if late:
        wait, name = max(late)
        share = share_text(len(late), len(waits), "request")
        return failed(f"late: {share}, {wait:.2f} s after {name}")
    count = count_text(len(waits), "request")
    return passed(f"{count} within {max(wait for wait, _ in waits):.2f} s")


def _refused(client: ClientRecording, code: ErrorCode) -> list[Push]:
    return [push for push in client.pushes if push.error == code and push.answered and not push.terminating]


def goes_on_after(code: ErrorCode) -> Callable[[ClientRecording], Verdict]:
    """KIP-714, "Error handling": after some errors a client goes on, and not at once."""

    def judge(client: ClientRecording) -> Verdict:
        refused = _refused(client, code)
        seen = 0
        for push in refused:
            verdict = _goes_on(client, push, code)
            if verdict is not None:
                if not verdict.passed:
                    return verdict
                seen += 1
        if not seen:
            return untried(f"no push was answered {code.name} in the middle of the client's life")
        return passed(f"went on after {seen} such answers")

    return judge


def asks_again_after_refusal(client: ClientRecording) -> Verdict:
    """KIP-714: a refused request for subscriptions is repeated later."""
    refused = [g for g in client.gets if g.error == ErrorCode.THROTTLING_QUOTA_EXCEEDED and g.answered]
    for get in refused:
        verdict = _goes_on(client, get, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if verdict is not None:
            return verdict
    return untried("no request for subscriptions was answered THROTTLING_QUOTA_EXCEEDED")


def _goes_on(client: ClientRecording, request: Get | Push, code: ErrorCode) -> Verdict | None:
    """Judge the request after an error; None if the client ended."""
    answered = request.answered or request.at
    interval = request.subscription.interval_s if request.subscription else 1.0
    following = client.next_after(request)
    if following is None:
        silent = client.lasted_until - answered
        if silent > 4 * interval + 1:
            return failed(f"no request in {silent:.1f} s after {code.name}")
        return None
    if isinstance(following, Push) and following.terminating:
        return None
    waited = following.at - answered
    if waited < interval / 2 - SLACK_S:
        return failed(f"the next request came {waited:.2f} s after {code.name}, interval {interval:g} s")
    return passed(f"the next request came {waited:.2f} s after {code.name}")


def stops_after(code: ErrorCode) -> Callable[[ClientRecording], Verdict]:
    """KIP-714, "Error handling": after some errors a client pushes no more."""

    def judge(client: ClientRecording) -> Verdict:
        refused = next((p for p in client.pushes if p.error == code and not p.terminating), None)
        if refused is None:
            return untried(
                f"no push was answered {code.name}; use --script {code.name.lower().replace('_', '-')}"
            )
        interval = refused.subscription.interval_s if refused.subscription else 1.0
        later = list(client.after(refused))
        if later:
            return failed(f"{count_text(len(later), 'telemetry request')} came after {code.name}")
        watched = client.lasted_until - refused.at
        if watched < 2 * interval:
            return untried(f"the client ended {watched:.1f} s after {code.name}")
        return passed(f"silent for {watched:.0f} s after {code.name}")

    return judge


def goes_on_after_lost_connection(client: ClientRecording) -> Verdict:
    """KIP-714, "Client behavior": a client uses another connection when one is lost."""
    lost = [r for r in _last_requests(client) if r.answered is not None]
    if not lost:
        return untried("no connection was lost; use a script with disconnect: answered")
    return _goes_on_after_loss(client, lost[0], "the connection was lost")


def repeats_a_lost_push(client: ClientRecording) -> Verdict:
    """KIP-714, "Client behavior": a push without an answer does not stop telemetry."""
    lost = [r for r in _last_requests(client) if r.answered is None]
    if not lost:
        return untried("no push was lost; use --script lost-push")
    return _goes_on_after_loss(client, lost[0], "a push was lost")


def _last_requests(client: ClientRecording) -> list[Get | Push]:
    """Return the last telemetry requests of connections that the kit closed."""
    found = []
    for connection in client.connections:
        telemetry = [r for r in connection.requests if isinstance(r, Get | Push)]
        if connection.closed_by == KIT and telemetry and connection.closed is not None:
            found.append(telemetry[-1])
    return found


def _goes_on_after_loss(client: ClientRecording, last: Get | Push, what: str) -> Verdict:
    following = client.next_after(last)
    if following is not None:
        return passed(f"the next telemetry request came {following.at - last.at:.2f} s after {what}")
    silent = client.lasted_until - last.at
    interval = last.subscription.interval_s if last.subscription else 1.0
    if silent > 4 * interval + 5:
        return failed(f"no telemetry request in {silent:.1f} s after {what}")
    return untried(f"the client ended {silent:.1f} s after {what}")


def respects_throttle(client: ClientRecording) -> Verdict:
    """KIP-219, "Proposed Changes": a throttled client sends nothing on the connection."""
    throttled = [r for r in client.telemetry if r.throttle_ms and r.answered]
    if not throttled:
        return untried("no answer had a throttle time")
    for request in throttled:
        answered = request.answered or request.at
        until = answered + request.throttle_ms / 1000
        # What is on its way when the answer arrives does not count.
        early = [
            r
            for r in request.connection.requests
            if answered + SLACK_S < r.at < until - SLACK_S and not _is_terminating(r)
        ]
        if early:
            count = count_text(len(early), "request")
            return failed(f"{count} on the connection within {request.throttle_ms} ms")
    return passed(count_text(len(throttled), "throttle time"))


def ends_with_a_push(client: ClientRecording) -> Verdict:
    """KIP-714, "Client termination": the last push says so."""
    told = next((g.subscription for g in reversed(client.gets) if g.subscription), None)
    if told is None or not client.pushes or not told.metrics:
        return untried("it had no subscription with metrics")
    if any(push.terminating for push in client.pushes):
        return passed("a terminating push")
    if _gave_up(client):
        return untried("an error had turned its telemetry off")
    if not client.closed or any(c.closed_by != CLIENT for c in _latest(client)):
        return untried("close the client before the kit ends")
    return failed("it closed its connections without a terminating push")


def nothing_after_the_end(client: ClientRecording) -> Verdict:
    """KIP-714, "Error handling": a push after the terminating one is INVALID_REQUEST."""
    ends = [push for push in client.pushes if push.terminating and push.error == 0]
    if not ends:
        return untried("it sent no terminating push")
    later = list(client.after(ends[0]))
    if later:
        return failed(f"{count_text(len(later), 'telemetry request')} after the terminating push")
    return passed("the terminating push was the last telemetry request")


def lives_without_matches(client: ClientRecording) -> Verdict:
    """KIP-714: a subscription that matches nothing is a subscription."""
    matching = {name for push in client.pushes if push.payload for name in push.payload.names}
    for get in client.gets:
        subscription = get.subscription
        if subscription is None or not subscription.metrics or subscription.wants_all:
            continue
        if not matching or any(subscription.wants(name) for name in matching):
            continue
        if client.next_after(get) is not None:
            return passed("it went on when no metric matched")
        lasted = client.lasted_until - get.at
        if client.closed:
            return failed(f"it ended {lasted:.1f} s after a subscription that matches none of its metrics")
        return passed(f"it was there {lasted:.1f} s later")
    return untried("no subscription matched none of its metrics")


def _is_terminating(request: Request) -> bool:
    return isinstance(request, Push) and request.terminating


def _gave_up(client: ClientRecording) -> bool:
    """Return whether an answer turned telemetry off (KIP-714, "Error handling")."""
    fatal = {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION}
    return any(error_name(request.error) in {code.name for code in fatal} for request in client.telemetry)


def _latest(client: ClientRecording) -> list[Connection]:
    last = max(connection.closed or 0.0 for connection in client.connections)
    return [c for c in client.connections if (c.closed or 0.0) >= last]
