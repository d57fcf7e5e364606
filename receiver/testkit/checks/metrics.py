"""Judges metrics: names, types, temporality, times, values, attributes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

from receiver.amounts import count_text, share_text
from receiver.catalogue import CATALOGUE, MetricKind
from receiver.telemetry.labels import OWNED_LABELS
from receiver.testkit.checks.check import Verdict, failed, passed, untried
from receiver.testkit.payload import CUMULATIVE, DELTA, Payload, Point
from receiver.testkit.recording import ClientRecording, Push

_PREFIX: Final = "org.apache.kafka."
_ROLES: Final = ("org.apache.kafka.producer.", "org.apache.kafka.consumer.")
#: The Resource attributes of KIP-714, "Client metrics and metric labels".
_OF_RESOURCE: Final = frozenset(
    {"client_rack", "group_id", "group_instance_id", "group_member_id", "transactional_id"}
)
#: Attributes of points that clients send under another name than KIP-714's, and that name.
_MISNAMED: Final = {
    "node.id": "'node_id' in the KIP",
    "broker_id": "'node_id' in the KIP",
    "member_id": "'group_member_id' in the KIP",
    "process-id": "in no KIP",
}
#: Nanoseconds that the clocks of client and kit may differ.
_CLOCKS_NS: Final = 60 * 10**9
#: The ends of the names of a node's latencies, and the latency in milliseconds that they resolve.
_NODE_AVG: Final = ".node.request.latency.avg"
_NODE_MAX: Final = ".node.request.latency.max"
_COARSE_MS: Final = 2.0
_NO_PUSH: Final = "no push had metrics"


def requested_only(client: ClientRecording) -> Verdict:
    """KIP-714: RequestedMetrics are prefixes."""
    tried = [(p, d) for p, d in _payloads(client) if p.subscription and not p.subscription.wants_all]
    tried = [(p, d) for p, d in tried if p.subscription and "*" not in p.subscription.metrics]
    if not tried:
        return untried("no push followed a subscription with prefixes")
    for push, payload in tried:
        others = sorted(
            name for name in payload.names if push.subscription and not push.subscription.wants(name)
        )
        if others:
            return failed(
                f"{count_text(len(others), 'metric')} not requested in {push.step!r}, such as {others[0]}"
            )
    return passed(f"{count_text(len(tried), 'push', 'pushes')} had only requested metrics")


def all_metrics(client: ClientRecording) -> Verdict:
    """KIP-714: an empty string requests all metrics."""
    pushes = [p for p in client.pushes if p.subscription and p.subscription.wants_all and not p.terminating]
    if not pushes:
        return untried('no push followed a subscription of [""]')
    sent = {name for push in pushes if push.payload for name in push.payload.names}
    if not sent:
        return failed(f'{count_text(len(pushes), "push", "pushes")} for [""] had no metrics')
    return passed(f'{count_text(len(sent), "metric")} for [""]')


def star(client: ClientRecording) -> Verdict:
    """Kafka 4.4 answers ``*`` for a subscription to all metrics."""
    pushes = [p for p in client.pushes if p.subscription and p.subscription.metrics == ("*",)]
    pushes = [push for push in pushes if not push.terminating]
    if not pushes:
        return untried('no push followed a subscription of ["*"]')
    if any(push.payload and push.payload.points for push in pushes):
        return passed('pushed metrics for ["*"]')
    return failed('no metrics for ["*"], which stock brokers answer for all metrics')


def every_prefix(client: ClientRecording) -> Verdict:
    """KIP-714: each of several prefixes counts."""
    everything = [payload.names for push, payload in _payloads(client) if _asks_all(push)]
    # A client leaves out what it has not measured since its last push.
    has = set.intersection(*everything) if everything else set()
    tried = 0
    for push, payload in _payloads(client):
        subscription = push.subscription
        if subscription is None or len(subscription.metrics) < 2 or push.terminating:
            continue
        expected = [m for m in subscription.metrics if any(name.startswith(m) for name in has)]
        if len(expected) < 2:
            continue
        tried += 1
        missing = [m for m in expected if not any(name.startswith(m) for name in payload.names)]
        if missing:
            return failed(
                f"no metric of {missing[0]}, although it has some and several prefixes were requested"
            )
    if not tried:
        return untried("no push followed several prefixes that each match a metric of the client")
    return passed(f"{count_text(tried, 'push', 'pushes')} had metrics of every prefix")


def no_repeats(client: ClientRecording) -> Verdict:
    """OpenTelemetry data model, "Single-Writer": a series has one point at a time."""
    payloads = list(_payloads(client))
    if not payloads:
        return untried(_NO_PUSH)
    for push, payload in payloads:
        counts = Counter((point.series, point.time_ns) for point in payload.points)
        repeated = [series for (series, _), count in counts.items() if count > 1]
        if repeated:
            return failed(
                f"{len(repeated)} series twice in a push of step {push.step!r}, such as {repeated[0][0]}"
            )
    return passed(count_text(len(payloads), "push", "pushes"))


def temporality(client: ClientRecording) -> Verdict:
    """KIP-714: DeltaTemporality."""
    seen = {True: 0, False: 0}
    for push, payload in _payloads(client):
        if push.subscription is None or push.terminating:
            continue
        wanted = DELTA if push.subscription.delta else CUMULATIVE
        for point in payload.points:
            if point.kind in {"sum", "histogram"} and point.temporality != wanted:
                asked = "delta" if push.subscription.delta else "cumulative"
                return failed(f"{point.name} was not {asked} in step {push.step!r}")
            seen[push.subscription.delta] += point.kind in {"sum", "histogram"}
    if not any(seen.values()):
        return untried("no push had a sum")
    return passed(f"{count_text(seen[True], 'point')} as delta, {seen[False]} as cumulative")


def monotonic_sums(client: ClientRecording) -> Verdict:
    """KIP-714, "Metric types": a total is a monotonic sum."""
    totals = [point for _, payload in _payloads(client) for point in payload.points if _is_total(point)]
    if not totals:
        return untried("no push had a total")
    wrong = next((point for point in totals if point.kind != "sum" or not point.monotonic), None)
    if wrong is not None:
        return failed(f"{wrong.name} is a {wrong.kind}, not a monotonic sum")
    return passed(f"{count_text(len(totals), 'point')} of totals")


def never_falls(client: ClientRecording) -> Verdict:
    """OpenTelemetry data model, "Sums": a monotonic sum never falls."""
    last: dict[object, float] = {}
    seen = 0
    for push, payload in _payloads(client):
        for point in payload.points:
            if point.kind != "sum" or not point.monotonic or point.value is None:
                continue
            seen += 1
            if point.temporality == DELTA and point.value < 0:
                return failed(f"{point.name} fell by {-point.value:g} in step {push.step!r}")
            key = (point.series, point.start_ns)
            if point.temporality == CUMULATIVE and point.value < last.get(key, -math.inf):
                return failed(
                    f"{point.name} fell from {last[key]:g} to {point.value:g} in step {push.step!r}"
                )
            if point.temporality == CUMULATIVE:
                last[key] = point.value
    if not seen:
        return untried("no push had a monotonic sum")
    return passed(count_text(seen, "point"))


def start_times(client: ClientRecording) -> Verdict:
    """OpenTelemetry data model, "Temporality": a sum has a start time."""
    sums = [point for _, payload in _payloads(client) for point in payload.points if point.kind == "sum"]
    if not sums:
        return untried("no push had a sum")
    without = [point for point in sums if not point.start_ns]
    if without:
        share = share_text(len(without), len(sums), "point")
        return failed(f"{share} without start time, such as {without[0].name}")
    after = [point for point in sums if point.start_ns > point.time_ns]
    if after:
        share = share_text(len(after), len(sums), "point")
        return failed(f"{share} with a start after its time, such as {after[0].name}")
    return passed(count_text(len(sums), "point"))


def cumulative_starts(client: ClientRecording) -> Verdict:
    """OpenTelemetry data model, "Resets": the start of a cumulative sum stays."""
    starts: dict[object, tuple[int, float]] = {}
    seen = 0
    for _, payload in _payloads(client):
        for point in payload.points:
            if point.kind != "sum" or point.temporality != CUMULATIVE or point.value is None:
                continue
            seen += 1
            before = starts.get(point.series)
            # A new start without a smaller value would be counted twice.
            if before and before[0] != point.start_ns and point.value >= before[1] > 0:
                return failed(f"the start time of {point.name} moved although the value did not fall")
            starts[point.series] = (point.start_ns, point.value)
    if seen < 2:
        return untried("too few cumulative points")
    return passed(count_text(seen, "point"))


def no_nan(client: ClientRecording) -> Verdict:
    """KIP-714, "Sparse metrics": send metrics with a recorded value."""
    points = [point for _, payload in _payloads(client) for point in payload.points]
    if not points:
        return untried(_NO_PUSH)
    wrong = [point for point in points if point.value is not None and not math.isfinite(point.value)]
    if wrong:
        share = share_text(len(wrong), len(points), "point")
        return failed(f"NaN or infinite: {share}, such as {wrong[0].name}")
    return passed(count_text(len(points), "point"))


def has_values(client: ClientRecording) -> Verdict:
    """opentelemetry-proto, NumberDataPoint: a point has a value."""
    points = [point for _, payload in _payloads(client) for point in payload.points]
    numbers = [point for point in points if point.kind in {"gauge", "sum"}]
    if not numbers:
        return untried(_NO_PUSH)
    without = [point for point in numbers if point.value is None]
    if without:
        share = share_text(len(without), len(numbers), "point")
        return failed(f"{share} without value, such as {without[0].name}")
    return passed(count_text(len(numbers), "point"))


def recent_times(client: ClientRecording) -> Verdict:
    """opentelemetry-proto: time_unix_nano is when the value was read."""
    tried = 0
    for push, payload in _payloads(client):
        for point in payload.points:
            if not point.time_ns:
                return failed(f"{point.name} has no time")
            if abs(point.time_ns - push.wall_ns) > _CLOCKS_NS:
                off = (point.time_ns - push.wall_ns) / 1e9
                return failed(f"the time of {point.name} is {off:+.0f} s off")
            tried += 1
    return passed(count_text(tried, "point")) if tried else untried(_NO_PUSH)


def required_metrics(client: ClientRecording) -> Verdict:
    """KIP-714, "Client metrics and metric labels": the standard metrics."""
    sent = {name for _, payload in _payloads(client) for name in payload.names}
    roles = [role for role in _ROLES if any(name.startswith(role) for name in sent)]
    if not roles:
        return untried("it sent no metric of a producer or consumer")
    required = [m.name for m in CATALOGUE if m.required and m.name.startswith(tuple(roles))]
    missing = [name.removeprefix(_PREFIX) for name in required if name not in sent]
    if missing:
        return failed(f"{len(missing)} of {len(required)} are missing: {', '.join(missing)}")
    return passed(f"all {len(required)}")


def standard_types(client: ClientRecording) -> Verdict:
    """KIP-714: the type of each standard metric."""
    seen: dict[str, str] = {}
    for _, payload in _payloads(client):
        for point in payload.points:
            seen.setdefault(point.name, point.kind)
    known = [(m, seen[m.name]) for m in CATALOGUE if m.name in seen and m.required]
    if not known:
        return untried("it sent no standard metric")
    for metric, kind in known:
        if kind != str(metric.kind):
            return failed(f"{metric.name} is a {kind}, not a {metric.kind}")
    return passed(count_text(len(known), "standard metric"))


def known_names(client: ClientRecording) -> Verdict:
    """KIP-714: no metrics under the prefix without an accepted KIP."""
    sent = {name for _, payload in _payloads(client) for name in payload.names}
    if not sent:
        return untried(_NO_PUSH)
    unknown = sorted(name for name in sent if name.startswith(_PREFIX) and CATALOGUE.metric(name) is None)
    if unknown:
        share = share_text(len(unknown), len(sent), "name")
        return failed(f"in no catalogue: {share}, such as {unknown[0]}")
    return passed(count_text(len(sent), "name"))


def node_attribute(client: ClientRecording) -> Verdict:
    """KIP-714, "Standard producer metrics": the label of a node is node_id."""
    keys = Counter(key for _, payload in _payloads(client) for p in payload.points for key, _ in p.attributes)
    if not keys:
        return untried("no point had an attribute")
    wrong = next((key for key in keys if key in _MISNAMED), None)
    if wrong is not None:
        return failed(f"{keys[wrong]} points have {wrong!r}, which is {_MISNAMED[wrong]}")
    return passed(", ".join(sorted(keys)))


def resource_attributes(client: ClientRecording) -> Verdict:
    """KIP-714, "Client metrics and metric labels": the labels that a client may add."""
    payloads = list(_payloads(client))
    if not payloads:
        return untried(_NO_PUSH)
    keys = sorted({key for _, payload in payloads for key, _ in payload.resource} - set(OWNED_LABELS))
    others = [key for key in keys if key not in _OF_RESOURCE]
    if others:
        return failed(f"attributes that the KIP does not name: {', '.join(others[:5])}")
    return passed(", ".join(keys) or "none")


def no_owned_labels(client: ClientRecording) -> Verdict:
    """KIP-714: the broker adds these labels."""
    payloads = list(_payloads(client))
    if not payloads:
        return untried(_NO_PUSH)
    owned = sorted({key for _, payload in payloads for key, _ in payload.resource} & set(OWNED_LABELS))
    if owned:
        return failed(f"attributes that the broker adds: {', '.join(owned)}")
    return passed("none")


def one_resource(client: ClientRecording) -> Verdict:
    """opentelemetry-proto, ResourceMetrics: the metrics of one Resource."""
    payloads = list(_payloads(client))
    if not payloads:
        return untried(_NO_PUSH)
    most = max(payload.resources for _, payload in payloads)
    if most > 1:
        return failed(f"up to {most} ResourceMetrics in a push")
    return passed("one ResourceMetrics in a push")


def averages_fit(client: ClientRecording) -> Verdict:
    """An average is never greater than the maximum of the same series.

    A client reads one after the other, and its window may move between them. So one push is no
    proof.
    """
    pairs = 0
    over: dict[object, str] = {}
    for push, payload in _payloads(client):
        values = {point.series: point.value for point in payload.points if point.value is not None}
        for (name, attributes), value in values.items():
            if not name.endswith(".avg"):
                continue
            most = values.get((f"{name[: -len('.avg')]}.max", attributes))
            if most is None:
                continue
            pairs += 1
            if not value > most * 1.001 + 1e-9:
                continue
            seen = f"{name} is {value:g} and the maximum {most:g} in step {push.step!r}"
            if (name, attributes) in over:
                return failed(f"{over[name, attributes]}, and so in step {push.step!r}")
            over[name, attributes] = seen
    return passed(count_text(pairs, "pair")) if pairs else untried("no average had a maximum beside it")


def averages_cover(client: ClientRecording) -> Verdict:
    """An average of n values is at least the n-th part of their maximum.

    The kit counts all requests of the client, which are at least those of a node.
    """
    if any(connection.unrecorded for connection in client.connections):
        return untried("the client sent more requests than a recording holds")
    tried = 0
    for push, payload in _payloads(client):
        count = sum(request.at <= push.at for request in client.requests)
        values = {point.series: point.value for point in payload.points if point.value is not None}
        for (name, attributes), most in values.items():
            average = values.get((name.replace(_NODE_MAX, _NODE_AVG), attributes))
            # Whole milliseconds, below 2, are too coarse.
            if not name.endswith(_NODE_MAX) or average is None or not most >= _COARSE_MS:
                continue
            tried += 1
            if average * count < most / 2:
                seen = f"{average:g} ms with a maximum of {most:g} ms, after {count} requests"
                return failed(f"{name.replace(_NODE_MAX, _NODE_AVG)} is {seen}")
    return passed(f"{tried} averages") if tried else untried("no latency of a node was over 2 ms")


def rates_move(client: ClientRecording) -> Verdict:
    """A rate follows its total: it falls while the total rests."""
    rates: dict[object, list[float]] = {}
    for _, payload in _payloads(client):
        for point in payload.points:
            if point.name.endswith(".connection.creation.rate") and point.value is not None:
                rates.setdefault(point.series, []).append(point.value)
    long = [values for values in rates.values() if len(values) >= 5]
    if not long:
        return untried("fewer than 5 points of a connection creation rate")
    constant = [values for values in long if len(set(values)) == 1 and values[0] > 0]
    if constant:
        pushes = count_text(len(constant[0]), "push", "pushes")
        return failed(f"a connection creation rate was {constant[0][0]:g} in all {pushes}")
    return passed(f"{count_text(len(long), 'rate')} changed")


def _payloads(client: ClientRecording) -> Iterator[tuple[Push, Payload]]:
    return ((push, push.payload) for push in client.pushes if push.payload is not None)


def _asks_all(push: Push) -> bool:
    return push.subscription is not None and push.subscription.wants_all


def _is_total(point: Point) -> bool:
    metric = CATALOGUE.metric(point.name)
    return point.name.endswith(".total") and (metric is None or metric.kind is MetricKind.SUM)
