"""Validates, normalises and labels the OTLP bytes of a push.

How, without Python looking at every message:

1. The nested messages of a large push are counted first, because a message takes only two bytes but
   much more memory and time. A push with few messages costs no more than a client's usual push.
2. Protobuf parses the whole push: that is the validation.
3. A push with an unusual encoding of its outer messages (a Resource in two pieces, a length in more
   bytes than necessary) is re-encoded, so that later steps see each message once.
4. Byte searches find what may have to be removed (:mod:`receiver.telemetry.scrub`): nearly always
   nothing, or a few metrics of a Java client that are NaN because nothing was measured yet.
5. The remaining metrics, as one list, go through :mod:`receiver.telemetry.steps`.
6. When all ResourceMetrics have the same Resource, as from Java clients, reading the bytes as one
   of the messages of :mod:`receiver.telemetry.otlp_views` merges them. Otherwise they are grouped
   one by one.

Unknown fields are kept. A ResourceMetrics with unknown fields is merged with no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.telemetry.errors import InvalidMetricsError, TooLargeError
from receiver.telemetry.labels import length_delimited
from receiver.telemetry.otlp_views import Checked, Frames, MetricList, OneResource, OneScope, Outline
from receiver.telemetry.scrub import Scrubber, may_need_scrubbing, refuse_too_many, refuse_too_many_hits
from receiver.telemetry.steps.counts import StepCounts
from receiver.telemetry.steps.metrics import NO_BOUND, Applied, MetricSteps, SeriesBound
from receiver.telemetry.steps.scopes import apply_to_scopes
from receiver.telemetry.steps.steps import NO_STEPS
from receiver.telemetry.steps.wanted import Wanted, drop_unwanted, drop_unwanted_of_scope

#: The maximum number of ResourceMetrics in a push with different Resources, which Python groups.
MAX_RESOURCES: Final = 1_000

# The smallest message: a tag and a length.
_LEAST_ENTRY_BYTES: Final = 2

_RESOURCE_METRICS_TAG: Final = b"\x0a"
_RESOURCE_TAG: Final = b"\x0a"
_SCOPE_METRICS_TAG: Final = b"\x12"

# One ResourceMetrics with one empty ScopeMetrics.
_NO_FIELDS: Final = b"\x0a\x02\x12\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledMetrics:
    """A MetricsData with the receiver's labels, and its counts.

    It is empty when no metric remains.
    """

    data: bytes = b""
    #: The first Resource as the client sent it; None without metrics.
    resource: bytes | None = field(default=None, compare=False, repr=False)
    dropped_points: int = 0  # their value is NaN or infinite
    removed_labels: int = 0  # attributes with keys that the receiver owns
    series: int = 0  # data points within the budget, without the overflow series
    overflowed: int = 0  # data points over a bound, replaced by the overflow series
    not_admitted: int = 0  # those of them whose series are new beyond the limit
    steps: StepCounts = field(default_factory=StepCounts)


def label_metrics(
    data: bytes,
    labels: bytes,
    *,
    max_entries: int,
    steps: MetricSteps = NO_STEPS,
    wanted: Wanted | None = None,
    bound: SeriesBound = NO_BOUND,
) -> LabelledMetrics:
    """Validate a push's metrics, apply the steps, merge Resources and label them.

    A push whose Resources or scopes have no metrics is empty: it is valid OTLP, and franz-go sends
    it when no metric matches. Java and librdkafka then send nothing.

    Args:
        data: Inflated bytes of a MetricsData, not empty.
        labels: Attributes for every Resource, from :func:`~receiver.telemetry.labels.label_bytes`.
        max_entries: The maximum number of nested messages.
        wanted: Prefixes of the names of the metrics that remain, in UTF-8; None for all.

    Raises:
        InvalidMetricsError: The bytes are not a MetricsData, or have no ResourceMetrics.
        TooLargeError: Too many nested messages, different Resources, or messages to parse.

    Source: KIP-714, "Metrics serialization format"; opentelemetry-proto, ``metrics.proto``.
    """
    try:
        # A push of that size cannot have more messages.
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
    if not count:
        raise InvalidMetricsError("there is no metrics message in the bytes")
    if not scope_metrics.metrics:
        return LabelledMetrics()
    resources = merged.resource_metrics.resource
    resource = resources[0] if resources else b""
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
    counts = StepCounts()
    if wanted is not None and one_list:
        counts.unsubscribed_points = drop_unwanted_of_scope(merged.resource_metrics.scope_metrics, wanted)
    elif wanted is not None:
        outline = Outline.FromString(data)
        counts.unsubscribed_points = drop_unwanted(outline, wanted)
        data, count = outline.SerializeToString(), len(outline.resource_metrics)
        merged = OneScope.FromString(data)
    remaining = merged.resource_metrics.scope_metrics.metrics
    if not remaining:
        data = b""
        applied = Applied()
    elif one_list:
        data, applied = _label_one_list(merged.resource_metrics, labels, steps, bound, counts)
    else:
        outline = Outline.FromString(data)
        together = merged.resource_metrics.scope_metrics.SerializeToString()
        applied = apply_to_scopes(outline, remaining, together, steps, bound, counts)
        if applied.metrics is not remaining:
            data = outline.SerializeToString()
            count = len(outline.resource_metrics)
        data = _label_each_resource(data, count, labels, plain=plain) if applied.metrics else b""
    return LabelledMetrics(
        data=data,
        resource=resource,
        dropped_points=scrubber.dropped_points,
        removed_labels=scrubber.removed_labels,
        series=applied.series,
        overflowed=applied.overflowed,
        not_admitted=applied.not_admitted,
        steps=counts,
    )


def _entries(data: bytes) -> int:
    """Estimate the number of nested messages by the bytes of their tags and lengths.

    These are two bytes, or three for the few messages of more than 127 bytes. For real clients the
    estimate is within a tenth. Lengths in more bytes than necessary count for more messages.
    """
    return (len(data) - int(Frames.FromString(data).ByteSize())) // _LEAST_ENTRY_BYTES


def _is_one_list(resource_metrics: Any, count: int) -> bool:
    """Return whether all metrics have one Resource and no scope, as from Java."""
    scope_metrics = resource_metrics.scope_metrics
    return (
        _is_one_resource(resource_metrics, count) and not scope_metrics.scope and not scope_metrics.schema_url
    )


def _is_one_resource(resource_metrics: Any, count: int) -> bool:
    """Return whether the ``count`` merged ResourceMetrics have the same Resource."""
    resources = resource_metrics.resource
    # Either none has a Resource or each has. No Resource and an empty one are equal too, but no
    # client mixes them.
    same = not resources or (len(resources) == count and len(set(resources)) == 1)
    return same and not resource_metrics.schema_url


def _scrub_one_list(resource_metrics: Any, scrubber: Scrubber) -> None:
    resources = resource_metrics.resource
    if resources:
        resources[0] = scrubber.scrub_resource(resources[0], len(resources))
    scrubber.scrub_metrics(resource_metrics.scope_metrics.metrics)


def _label_one_list(
    one_resource: Any, labels: bytes, steps: MetricSteps, bound: SeriesBound, counts: StepCounts
) -> tuple[bytes, Applied]:
    resource = b""
    if one_resource.resource:
        resource = steps.rewriter.resource(one_resource.resource[0], counts, len(one_resource.resource))
    metrics = one_resource.scope_metrics.metrics
    together = one_resource.scope_metrics.SerializeToString()
    applied = steps.apply(metrics, together, [(resource, b"", len(metrics))], bound, counts)
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
    # The rest of the outline are unknown fields beside the ResourceMetrics.
    outline.ClearField("resource_metrics")
    return b"".join(parts) + bytes(outline.SerializeToString())


def _resource_metrics(resource: bytes, others: bytes) -> bytes:
    return length_delimited(_RESOURCE_METRICS_TAG, length_delimited(_RESOURCE_TAG, resource) + others)


def _has_unknown_outer_fields(data: bytes) -> bool:
    """Return whether a push has unknown fields outside Resources and metrics.

    It removes the known fields and looks at the rest, because listing the unknown fields makes a
    Python object of each, and a push may have millions.
    """
    merged = OneScope.FromString(data)
    resource_metrics = merged.resource_metrics
    scope_metrics = resource_metrics.scope_metrics
    for name in ("scope", "metrics", "schema_url"):
        scope_metrics.ClearField(name)
    for name in ("resource", "schema_url"):
        resource_metrics.ClearField(name)
    return bool(merged.SerializeToString() != _NO_FIELDS)


def _has_unknown_fields(resource_metrics: Any) -> bool:
    known = type(resource_metrics)()
    known.CopyFrom(resource_metrics)
    known.ClearField("scope_metrics")
    size = known.ByteSize()
    known.DiscardUnknownFields()
    return bool(known.ByteSize() != size)
