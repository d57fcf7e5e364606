"""From the OTLP bytes of a push to labelled bytes that a plugin can forward as they are.

Owns what a valid push is and how it is put together. It must not know who pushed: the labels come as bytes.

How a push is taken apart without Python looking at every message:

1. The messages in a push of some size are counted, because a message takes two bytes at least, and much more
   memory and time. What is nested in a push that has few costs no more than in one that clients send.
2. Protobuf parses the whole: that is the check.
3. A push whose outer messages are encoded in an odd way (a Resource in two pieces, a length in more bytes
   than it needs) is written out again, so that what follows sees each thing once.
4. Searches over the bytes show what may have to be taken out (:mod:`receiver.telemetry.scrub`): nearly always
   nothing, or a few metrics of a Java client that are NaN because nothing was measured yet.
5. What is left is a list of metrics for :mod:`receiver.telemetry.steps`, whatever they were in.
6. Where every ResourceMetrics has the same Resource, as Java clients send it, reading the bytes as one of
   :mod:`receiver.telemetry.otlp_views` merges them. Where they differ they are grouped one by one.

Unknown fields are kept. A ResourceMetrics that has some is merged with no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.telemetry.errors import InvalidMetricsError, TooLargeError
from receiver.telemetry.labels import length_delimited
from receiver.telemetry.otlp_views import Checked, Frames, MetricList, OneResource, OneScope, Outline
from receiver.telemetry.scrub import Scrubber, may_need_scrubbing, refuse_too_many, refuse_too_many_hits
from receiver.telemetry.steps import (
    NO_STEPS,
    NOTHING_APPLIED,
    NOTHING_DONE,
    Applied,
    AttributeCounts,
    MetricSteps,
    StepCounts,
    apply_to_scopes,
)

__all__ = ["MAX_RESOURCES", "InvalidMetricsError", "LabelledMetrics", "TooLargeError", "label_metrics"]

#: ResourceMetrics in a push, where they have different Resources and Python has to look at each.
MAX_RESOURCES: Final = 1_000

# A tag and a length: what the smallest message is.
_LEAST_ENTRY_BYTES: Final = 2

_RESOURCE_METRICS_TAG: Final = b"\x0a"
_RESOURCE_TAG: Final = b"\x0a"
_SCOPE_METRICS_TAG: Final = b"\x12"

#: One ResourceMetrics with one ScopeMetrics in which nothing is.
_NO_FIELDS: Final = b"\x0a\x02\x12\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledMetrics:
    """What became of a push's metrics.

    Attributes:
        data: The bytes of a MetricsData with the receiver's labels; empty when no metric is left.
        dropped_points: Data points left out because their value is NaN or infinite.
        removed_labels: Attributes left out because their keys are the receiver's.
        series: Data points that are left, without those over the budget and without the series for them.
        overflowed: Data points over the budget, which became one overflow series.
        steps: What the steps did.
    """

    data: bytes
    dropped_points: int = 0
    removed_labels: int = 0
    series: int = 0
    overflowed: int = 0
    steps: StepCounts = NOTHING_DONE


def label_metrics(
    data: bytes,
    labels: bytes,
    *,
    max_entries: int,
    steps: MetricSteps | None = None,
    max_series: int | None = None,
) -> LabelledMetrics:
    """Check the metrics of a push, do the steps to them, merge its equal Resources and label them.

    Args:
        data: Inflated bytes of a MetricsData, not empty.
        labels: Attributes to add to every Resource, from :func:`~receiver.telemetry.labels.label_bytes`.
        max_entries: How many messages may be nested in it.
        steps: The steps for its client; None for none.
        max_series: How many data points its client may have; None for any number.

    Returns:
        The labelled metrics.

    Raises:
        InvalidMetricsError: The bytes are no MetricsData, or there is no metric in them. A scope without
            metrics is taken for an empty push, because franz-go sends that where nothing matches; Java and
            librdkafka then send nothing at all.
        TooLargeError: More nested messages than allowed, or more different Resources or more to take out
            than can be looked at one by one.

    Source: KIP-714, "Metrics serialization format"; opentelemetry-proto, ``metrics.proto``.
    """
    try:
        # As many have room in so many bytes.
        if len(data) > _LEAST_ENTRY_BYTES * max_entries and _entries(data) > max_entries:
            raise TooLargeError(f"has more than {max_entries} nested messages (telemetry.max_entries)")
        Checked.FromString(data)
    except DecodeError as error:
        raise InvalidMetricsError("the bytes are no OTLP MetricsData") from error
    outline = Outline.FromString(data)
    count = len(outline.resource_metrics)
    if outline.SerializeToString() != data:
        data = MetricsData.FromString(data).SerializeToString()
    merged = OneScope.FromString(data)
    scope_metrics = merged.resource_metrics.scope_metrics
    if not scope_metrics.metrics:
        if not scope_metrics.scope:
            raise InvalidMetricsError("there is no metrics message in the bytes")
        return LabelledMetrics(data=b"")
    scrubber = Scrubber()
    plain = not _has_unknown_outer_fields(data)
    one_list = plain and _is_one_list(merged.resource_metrics, count)
    if may_need_scrubbing(data):
        if one_list:
            refuse_too_many_hits(data, len(scope_metrics.metrics))
            _scrub_one_list(merged.resource_metrics, scrubber)
        else:
            refuse_too_many(count + len(scope_metrics.metrics))
            metrics = MetricsData.FromString(data)
            scrubber.scrub(metrics)
            data = metrics.SerializeToString()
            count = len(metrics.resource_metrics)
            merged = OneScope.FromString(data)
    steps = steps or NO_STEPS
    left = merged.resource_metrics.scope_metrics.metrics
    if not left:
        data = b""
        applied = NOTHING_APPLIED
    elif one_list:
        data, applied = _label_one_list(merged.resource_metrics, labels, steps, max_series)
    else:
        outline = Outline.FromString(data)
        together = merged.resource_metrics.scope_metrics.SerializeToString()
        applied = apply_to_scopes(outline, left, together, steps, max_series)
        if applied.metrics is not left:
            data = outline.SerializeToString()
            count = len(outline.resource_metrics)
        data = _label_each_resource(data, count, labels, plain=plain) if applied.metrics else b""
    return LabelledMetrics(
        data=data,
        dropped_points=scrubber.dropped_points,
        removed_labels=scrubber.removed_labels,
        series=applied.series,
        overflowed=applied.overflowed,
        steps=applied.counts,
    )


def _entries(data: bytes) -> int:
    """Count the messages nested in a push, by what they are wrapped in.

    That is a tag and a length: two bytes, and three for the few in a push that hold more than 127 bytes. What
    clients send is counted within a tenth; lengths in more bytes than they need count for more.
    """
    return (len(data) - int(Frames.FromString(data).ByteSize())) // _LEAST_ENTRY_BYTES


def _is_one_list(resource_metrics: Any, count: int) -> bool:
    """Say whether neither Resources nor scopes tell metrics apart, as Java's are not told apart."""
    scope_metrics = resource_metrics.scope_metrics
    return (
        _is_one_resource(resource_metrics, count) and not scope_metrics.scope and not scope_metrics.schema_url
    )


def _is_one_resource(resource_metrics: Any, count: int) -> bool:
    """Say whether the ``count`` ResourceMetrics that were read as one are all of the same Resource."""
    resources = resource_metrics.resource
    # Either none has a Resource or each has. None and an empty one are the same too, but nobody sends such a
    # mix.
    same = not resources or (len(resources) == count and len(set(resources)) == 1)
    return same and not resource_metrics.schema_url


def _scrub_one_list(resource_metrics: Any, scrubber: Scrubber) -> None:
    resources = resource_metrics.resource
    if resources:
        resources[0] = scrubber.scrub_resource(resources[0], len(resources))
    scrubber.scrub_metrics(resource_metrics.scope_metrics.metrics)


def _label_one_list(
    one_resource: Any, labels: bytes, steps: MetricSteps, max_series: int | None
) -> tuple[bytes, Applied]:
    attributes = AttributeCounts()
    resource = b""
    if one_resource.resource:
        resource = steps.resource(one_resource.resource[0], attributes)
        attributes.dropped *= len(one_resource.resource)
        attributes.hashed *= len(one_resource.resource)
    metrics = one_resource.scope_metrics.metrics
    together = one_resource.scope_metrics.SerializeToString()
    applied = steps.apply(metrics, together, max_series, attributes)
    if not applied.metrics:
        return b"", applied
    if applied.metrics is not metrics:
        together = MetricList(metrics=applied.metrics).SerializeToString()
    return _resource_metrics(resource + labels, length_delimited(_SCOPE_METRICS_TAG, together)), applied


def _label_each_resource(data: bytes, count: int, labels: bytes, *, plain: bool) -> bytes:
    resource_metrics = OneResource.FromString(data).resource_metrics
    if not (plain and _is_one_resource(resource_metrics, count)):
        return _label_groups(data, count, labels, plain=plain)
    resource = resource_metrics.resource[0] if resource_metrics.resource else b""
    resource_metrics.ClearField("resource")
    return _resource_metrics(resource + labels, resource_metrics.SerializeToString())


def _label_groups(data: bytes, count: int, labels: bytes, *, plain: bool) -> bytes:
    """Merge the ResourceMetrics that have equal Resources, in order of appearance."""
    if count > MAX_RESOURCES:
        raise TooLargeError(f"has more than {MAX_RESOURCES} ResourceMetrics of different Resources")
    outline = Outline.FromString(data)
    groups: dict[tuple[Any, ...], Any] = {}
    for index, resource_metrics in enumerate(outline.resource_metrics):
        key = (
            (index,)
            if not plain and _has_unknown_fields(resource_metrics)
            else (resource_metrics.resource, resource_metrics.schema_url)
        )
        group = groups.setdefault(key, resource_metrics)
        if group is not resource_metrics:
            group.scope_metrics.extend(resource_metrics.scope_metrics)
    parts = []
    for group in groups.values():
        resource = group.resource + labels
        group.ClearField("resource")
        parts.append(_resource_metrics(resource, group.SerializeToString()))
    # What is left of the push are fields beside its ResourceMetrics, unknown to us.
    outline.ClearField("resource_metrics")
    return b"".join(parts) + bytes(outline.SerializeToString())


def _resource_metrics(resource: bytes, others: bytes) -> bytes:
    return length_delimited(_RESOURCE_METRICS_TAG, length_delimited(_RESOURCE_TAG, resource) + others)


def _has_unknown_outer_fields(data: bytes) -> bool:
    """Say whether a push with metrics has fields that we do not know outside its Resources and metrics.

    By what is left without the known ones: to list unknown fields makes a Python object of each, and a push
    may have millions.
    """
    merged = OneScope.FromString(data)
    resource_metrics = merged.resource_metrics
    scope_metrics = resource_metrics.scope_metrics
    for field in ("scope", "metrics", "schema_url"):
        scope_metrics.ClearField(field)
    for field in ("resource", "schema_url"):
        resource_metrics.ClearField(field)
    return bool(merged.SerializeToString() != _NO_FIELDS)


def _has_unknown_fields(resource_metrics: Any) -> bool:
    """Say whether a ResourceMetrics has fields that we do not know beside its ScopeMetrics."""
    known = type(resource_metrics)()
    known.CopyFrom(resource_metrics)
    known.ClearField("scope_metrics")
    size = known.ByteSize()
    known.DiscardUnknownFields()
    return bool(known.ByteSize() != size)
