"""Judges codecs and sizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from receiver.amounts import count_text, share_text
from receiver.telemetry.compression import CODEC_NAMES
from receiver.testkit.checks.check import Verdict, failed, passed, untried
from receiver.testkit.recording import ClientRecording, Push, Subscription

_NONE: Final = 0
#: A limit that a client may reach.
_SMALL: Final = 10_000


def accepted_codec(client: ClientRecording) -> Verdict:
    """KIP-714, GetTelemetrySubscriptionsResponse: AcceptedCompressionTypes."""
    told = _told(client)
    if not told:
        return untried("no push had metrics")
    for push, subscription in told:
        if push.codec != _NONE and push.codec not in subscription.codecs:
            offered = codec_names(subscription.codecs) or "no codec"
            return failed(f"{_name(push.codec)} in step {push.step!r}, which offered {offered}")
    return passed(f"used {codec_names(sorted({push.codec for push, _ in told}))}")


def preferred_codec(client: ClientRecording) -> Verdict:
    """KIP-714: the codecs are sorted, the preferred first."""
    told = [(push, subscription) for push, subscription in _told(client) if len(subscription.codecs) > 1]
    if not told:
        return untried("no push with metrics followed a subscription with several codecs")
    # A client may lack a codec. What it ever used, it has.
    has = {push.codec for push in _with_metrics(client)} - {_NONE}
    for push, subscription in told:
        wanted = next((codec for codec in subscription.codecs if codec in has), push.codec)
        if push.codec != wanted:
            seen = f"{_name(push.codec)} in step {push.step!r}"
            return failed(f"{seen}, though {_name(wanted)} was preferred and it has it")
    used = codec_names(sorted({push.codec for push, _ in told}))
    return passed(f"{used} of {codec_names(told[0][1].codecs)}")


def compresses(client: ClientRecording) -> Verdict:
    """KIP-714, "Compression": metrics are compressed."""
    pushes = [push for push, subscription in _told(client) if subscription.codecs]
    if not pushes:
        return untried("no push with metrics followed a subscription with codecs")
    plain = [push for push in pushes if push.codec == _NONE]
    if plain:
        steps = ", ".join(dict.fromkeys(push.step for push in plain))
        share = share_text(len(plain), len(pushes), "push", "pushes")
        return failed(f"not compressed: {share}, in {steps}")
    return passed(count_text(len(pushes), "compressed push", "compressed pushes"))


def readable(client: ClientRecording) -> Verdict:
    """KIP-714, "Metrics serialization format": OTLP in the declared codec."""
    pushes = _with_metrics(client)
    if not pushes:
        return untried("no push had metrics")
    wrong = [push for push in pushes if push.problem]
    if wrong:
        share = share_text(len(wrong), len(pushes), "push", "pushes")
        return failed(f"{share} with {_name(wrong[0].codec)}: {wrong[0].problem}")
    return passed(count_text(len(pushes), "push", "pushes"))


def empty_is_plain(client: ClientRecording) -> Verdict:
    """KIP-714: empty metrics need no codec.

    Java clients compress them, so that a push without metrics has some bytes.
    """
    empty = [p for p in client.pushes if p.size == 0 or (p.payload is not None and not p.payload.inflated)]
    if not empty:
        return untried("no push was empty")
    coded = [push for push in empty if push.codec != _NONE]
    if coded:
        share = share_text(len(coded), len(empty), "empty push", "empty pushes")
        return failed(f"{share} named the codec {_name(coded[0].codec)}")
    return passed(count_text(len(empty), "empty push", "empty pushes"))


def within_limit(client: ClientRecording) -> Verdict:
    """KIP-714: TelemetryMaxBytes."""
    told = _told(client)
    for push, subscription in told:
        if push.size > subscription.max_bytes:
            return failed(f"a push of {push.size} bytes, under a limit of {subscription.max_bytes}")
    small = [subscription.max_bytes for _, subscription in told if subscription.max_bytes < _SMALL]
    if not small:
        return untried("no push with metrics followed a small limit")
    return passed(f"{count_text(len(small), 'push', 'pushes')} under a limit of {min(small)} bytes")


def _told(client: ClientRecording) -> list[tuple[Push, Subscription]]:
    """Return the pushes with metrics that followed a subscription, with it."""
    return [(push, push.subscription) for push in _with_metrics(client) if push.subscription is not None]


def _with_metrics(client: ClientRecording) -> list[Push]:
    return [push for push in client.pushes if push.size > 0]


def codec_names(codecs: Iterable[int]) -> str:
    """Return the names of codecs, with commas."""
    return ", ".join(map(_name, codecs))


def _name(codec: int) -> str:
    return CODEC_NAMES.get(codec, f"unknown({codec})")
