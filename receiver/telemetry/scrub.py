"""Drops NaN and infinite points, and attributes that the receiver owns.

A byte search proves that a push has neither; otherwise parsed messages decide. The search may find
too much, never too little: a double's tag and bytes are adjacent, and so are a key's bytes, however
oddly tags and lengths are encoded.

One attribute is renamed instead of dropped. KIP-714's draft has ``broker_id`` on the data points
of ``client.request.*``: the broker that the requests went to, or "bootstrap". The released KIP
calls it ``node_id``, so it becomes that, and never looks like the label of the broker that got the
push.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections.abc import MutableSequence
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from receiver.telemetry.errors import TooLargeError
from receiver.telemetry.labels import OWNED_LABELS

#: The maximum number of messages of a push that Python parses one by one.
MAX_SCRUBBED: Final = 10_000
#: The maximum number of their attributes.
MAX_ATTRIBUTES: Final = 10_000

# Up to so many items are deleted from a list one by one, because each deletion moves all that
# follow.
_MAX_DELETIONS: Final = 64

# Lengths below this take one byte.
_SHORT: Final = 0x80
# The tags of a data point, nine bytes apart: optional start_time_unix_nano, time_unix_nano,
# as_double.
_TAGS: Final = (b"\x19\x21", b"\x11\x19\x21")
# The bytes after the point: none in a gauge; temporality and is_monotonic in a sum.
_AFTER_THE_POINT: Final = (b"", b"\x10\x01\x18\x01", b"\x10\x02\x18\x01")

_OWNED: Final = frozenset(OWNED_LABELS)

#: The draft's metrics of requests to a broker (KIP-714, "Client instance-level metrics").
_OF_REQUESTS: Final = ("org.apache.kafka.client.request.", "client.request.")
_BROKER_ID: Final = "broker_id"
_NODE_ID: Final = "node_id"
#: The names of that attribute in released clients.
_NODE_KEYS: Final = frozenset({_NODE_ID, "node.id"})


def _key(key: str, *, after: str = "") -> bytes:
    """Return a pattern for an owned key, or for the part of it that follows ``after``.

    A look-behind requires the key's length before it, in one byte or in several that end in a zero.
    So a text that only contains the word, such as a topic's name, does not match.
    """
    return rb"%b(?<=[\x00\x%02x]%b)" % (key.removeprefix(after).encode(), len(key), key.encode())


# Each pattern starts with a literal, because Python's re finds literals at the speed of memory. All
# keys but two contain an underscore, which is rare.
_VALUES: Final = (
    # NumberDataPoint.as_double is field 4 of wire type 1: tag 0x21, eight bytes, little-endian. NaN
    # and the infinities have every bit of the exponent set. Only the tag is consumed, because hits
    # may overlap.
    re.compile(rb"\x21(?=.{6}[\xf0-\xff][\x7f\xff])", re.DOTALL),
    # The same tag in two to five bytes, which parsers accept too.
    re.compile(rb"\xa1\x80{0,3}\x00"),
)
_KEYS: Final = (
    re.compile(
        b"_(?:%b)" % b"|".join(_key(key, after=key.split("_")[0] + "_") for key in OWNED_LABELS if "_" in key)
    ),
    re.compile(_key("principal")),
    re.compile(_key("listener")),
)


def may_need_scrubbing(data: bytes) -> bool:
    """Return whether a push may need scrubbing; False is a proof that it does not."""
    # Unrolled, because this runs over every push.
    not_finite, long_tag = _VALUES
    key, principal, listener = _KEYS
    return bool(
        not_finite.search(data)
        or long_tag.search(data)
        or key.search(data)
        or principal.search(data)
        or listener.search(data)
    )


def refuse_too_many(messages: int, max_messages: int | None = None) -> None:
    """Raise TooLargeError if too many messages would have to be parsed singly."""
    max_messages = MAX_SCRUBBED if max_messages is None else max_messages
    if messages > max_messages:
        raise TooLargeError(f"has more than {max_messages} messages to parse one by one")


def refuse_too_many_hits(data: bytes, metrics: int) -> None:
    """Raise TooLargeError before many suspicious metrics become a list."""
    if metrics > MAX_SCRUBBED:
        _hits(_VALUES, data)
        _hits(_KEYS, data)


def _hits(patterns: tuple[re.Pattern[bytes], ...], data: bytes) -> list[int]:
    """Return the suspicious places; raise TooLargeError if there are too many."""
    found = itertools.chain.from_iterable(map(re.Pattern.finditer, patterns, itertools.repeat(data)))
    hits = [hit.start() for hit in itertools.islice(found, MAX_ATTRIBUTES + 1)]
    if len(hits) > MAX_ATTRIBUTES:
        raise TooLargeError(f"has more than {MAX_ATTRIBUTES} suspicious places")
    return hits


def _has_no_other_value(metric: bytes, place: int) -> bool:
    """Return whether a metric's only point has the double at ``place`` as value.

    True only for the usual encoding: a name, and a gauge or sum with one point, which has times, a
    value and at most one attribute.
    """
    # After three tags and lengths: of the name, of the data and of the point.
    begin = metric[1] + 6
    if place - begin not in (9, 18):
        return False
    after = place + 9
    end = begin + metric[begin - 1]
    return (
        max(metric[1], metric[begin - 3], metric[begin - 1]) < _SHORT
        and metric[0] == 0x0A
        and metric[begin - 4] in (0x2A, 0x3A)
        and metric[begin - 2] == 0x0A
        and begin - 2 + metric[begin - 3] == len(metric)
        and metric[end:] in _AFTER_THE_POINT
        and metric[begin:after:9] in _TAGS
        and (
            after == end
            or (
                after + 2 <= end
                and metric[after] == 0x3A
                and metric[after + 1] < _SHORT
                and after + 2 + metric[after + 1] == end
            )
        )
    )


class Scrubber:
    """Drops NaN and infinite values, and owned attributes, from one push.

    A metric, ScopeMetrics or ResourceMetrics that becomes empty is dropped too. All methods raise
    TooLargeError when more than :data:`MAX_SCRUBBED` messages or :data:`MAX_ATTRIBUTES` attributes
    would have to be parsed.
    """

    def __init__(self) -> None:
        self.dropped_points = 0
        self.removed_labels = 0  # attributes
        self._renamed = 0  # attributes
        self._messages = 0
        self._attributes = 0

    def scrub(self, metrics: MetricsData) -> None:
        """Scrub a whole push in place."""
        keep(metrics.resource_metrics, [self._keeps_resource(item) for item in metrics.resource_metrics])

    def scrub_metrics(self, metrics: MutableSequence[bytes]) -> None:
        """Scrub encoded Metric messages in place; only suspicious ones are parsed."""
        messages = list(metrics)
        together = b"".join(messages)
        ends = list(itertools.accumulate(map(len, messages)))
        value_hits = {bisect_right(ends, hit): hit for hit in _hits(_VALUES, together)}
        key_hits = {bisect_right(ends, hit) for hit in _hits(_KEYS, together)}
        suspicious = sorted(value_hits.keys() | key_hits)
        refuse_too_many(len(suspicious))
        emptied = []
        for index in suspicious:
            message = messages[index]
            if index not in key_hits and _has_no_other_value(
                message, value_hits[index] - ends[index] + len(message)
            ):
                self.dropped_points += 1
                emptied.append(index)
                continue
            metric = Metric.FromString(message)
            before = self._changes
            if not self._keeps_metric(metric, with_labels=index in key_hits):
                emptied.append(index)
            elif self._changes > before:
                metrics[index] = metric.SerializeToString()
        if len(emptied) > _MAX_DELETIONS:
            dropped = frozenset(emptied)
            metrics[:] = [metric for index, metric in enumerate(metrics) if index not in dropped]
        else:
            for index in reversed(emptied):
                del metrics[index]

    def scrub_resource(self, resource: bytes, occurrences: int) -> bytes:
        """Scrub an encoded Resource that a push has ``occurrences`` times."""
        if not may_need_scrubbing(resource):
            return resource
        parsed = Resource.FromString(resource)
        before = self.removed_labels
        self._remove_labels(parsed.attributes)
        removed = self.removed_labels - before
        self.removed_labels += removed * (occurrences - 1)
        return parsed.SerializeToString() if removed else resource

    @property
    def _changes(self) -> int:
        return self.dropped_points + self.removed_labels + self._renamed

    def _keeps_resource(self, resource_metrics: Any) -> bool:
        self._count_messages(1)
        self._remove_labels(resource_metrics.resource.attributes)
        kept = [self._keeps_scope(item) for item in resource_metrics.scope_metrics]
        return keep(resource_metrics.scope_metrics, kept)

    def _keeps_scope(self, scope_metrics: Any) -> bool:
        self._count_messages(1)
        self._remove_labels(scope_metrics.scope.attributes)
        kept = [self._keeps_metric(item, with_labels=True) for item in scope_metrics.metrics]
        return keep(scope_metrics.metrics, kept)

    def _keeps_metric(self, metric: Any, *, with_labels: bool) -> bool:
        self._count_messages(1)
        kind = metric.WhichOneof("data")
        if kind is None:
            return True
        points = getattr(metric, kind).data_points
        self._count_messages(len(points))
        if with_labels:
            self._remove_labels_of(points, of_requests=metric.name.startswith(_OF_REQUESTS))
        if kind not in ("gauge", "sum"):
            return True
        kept = [
            point.WhichOneof("value") != "as_double" or math.isfinite(point.as_double) for point in points
        ]
        self.dropped_points += kept.count(False)
        return keep(points, kept)

    def _remove_labels_of(self, points: Any, *, of_requests: bool) -> None:
        for point in points:
            self._remove_labels(point.attributes, of_requests=of_requests)
            exemplars = getattr(point, "exemplars", ())
            self._count_messages(len(exemplars))
            for exemplar in exemplars:
                self._remove_labels(exemplar.filtered_attributes)

    def _remove_labels(self, attributes: Any, *, of_requests: bool = False) -> None:
        # All at once, because each deletion moves all attributes that follow.
        self._count_attributes(len(attributes))
        if of_requests:
            self._rename_broker_id(attributes)
        kept = [attribute.key not in _OWNED for attribute in attributes]
        self.removed_labels += kept.count(False)
        keep(attributes, kept)

    def _rename_broker_id(self, attributes: Any) -> None:
        """Rename the first ``broker_id`` to ``node_id``, unless there is a node id."""
        if any(attribute.key in _NODE_KEYS for attribute in attributes):
            return
        for attribute in attributes:
            if attribute.key == _BROKER_ID:
                attribute.key = _NODE_ID
                self._renamed += 1
                return

    def _count_attributes(self, attributes: int) -> None:
        self._attributes += attributes
        if self._attributes > MAX_ATTRIBUTES:
            raise TooLargeError(f"has more than {MAX_ATTRIBUTES} attributes to parse")

    def _count_messages(self, messages: int) -> None:
        self._messages += messages
        refuse_too_many(self._messages)


def keep(items: Any, kept: list[bool]) -> bool:
    """Remove the other items; return False if the list became empty."""
    if False not in kept:
        return True
    remaining = list(itertools.compress(items, kept))
    del items[:]
    items.extend(remaining)
    return bool(remaining)
