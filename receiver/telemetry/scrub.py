"""Taking out of a push what must not be forwarded: values that are no numbers, labels not a client's.

Owns the quick proof that there is nothing to take out, and the exact way, on parsed messages, where there may
be. A search over bytes may find too much, and never too little: a double's tag and its bytes are next to each
other, and so are a key's, however oddly lengths and tags are encoded. It must not put a push together.
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

__all__ = [
    "MAX_ATTRIBUTES",
    "MAX_SCRUBBED",
    "Scrubber",
    "keep",
    "may_need_scrubbing",
    "refuse_too_many",
    "refuse_too_many_hits",
]

#: Messages in a push that Python may look at one by one.
MAX_SCRUBBED: Final = 10_000
#: And attributes of them.
MAX_ATTRIBUTES: Final = 10_000

# So many items are deleted from a list one by one; each moves all that follow.
_FEW: Final = 64

# A length in one byte.
_SHORT: Final = 0x80
# Of a data point, nine bytes from each other: start_time_unix_nano or not, time_unix_nano, as_double.
_TAGS: Final = (b"\x19\x21", b"\x11\x19\x21")
# A gauge has nothing more, a sum its temporality and whether it is monotonic.
_BEHIND_THE_POINT: Final = (b"", b"\x10\x01\x18\x01", b"\x10\x02\x18\x01")

_OWNED: Final = frozenset(OWNED_LABELS)


def _key(key: str, *, after: str = "") -> bytes:
    """Write a pattern for what follows in an owned key, and for the key as a whole behind it.

    In front of the key is its length, in one byte or in more that end in a zero. Text that only has the word
    in it, as a topic's name may, is nothing to look at.
    """
    return rb"%b(?<=[\x00\x%02x]%b)" % (key.removeprefix(after).encode(), len(key), key.encode())


# Each pattern begins with a literal, which Python's re looks for as fast as memory is read; an underscore is
# the rarest character that all but two of the keys have in common.
_VALUES: Final = (
    # NumberDataPoint.as_double is field 4 of wire type 1: tag 0x21. Its eight bytes are little-endian; NaN
    # and the infinities are those with every bit of the exponent set. Only the tag is consumed: hits may
    # overlap.
    re.compile(rb"\x21(?=.{6}[\xf0-\xff][\x7f\xff])", re.DOTALL),
    # The same tag in two to five bytes, which a parser takes too.
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
    """Say whether a push may have something to take out; False is a proof that it has not."""
    # Not in a loop: this runs over every push.
    not_finite, long_tag = _VALUES
    key, principal, listener = _KEYS
    return bool(
        not_finite.search(data)
        or long_tag.search(data)
        or key.search(data)
        or principal.search(data)
        or listener.search(data)
    )


def refuse_too_many(messages: int, most: int | None = None) -> None:
    """Refuse a push before it is parsed, of which so many messages would have to be looked at.

    Raises:
        TooLargeError: They are more than ``most``, by default :data:`MAX_SCRUBBED`.
    """
    most = MAX_SCRUBBED if most is None else most
    if messages > most:
        raise TooLargeError(f"has more than {most} messages to look at")


def refuse_too_many_hits(data: bytes, metrics: int) -> None:
    """Refuse a push of so many metrics before they are made a list, where too much of it is suspicious.

    Raises:
        TooLargeError: More than :data:`MAX_ATTRIBUTES` places are.
    """
    if metrics > MAX_SCRUBBED:
        _hits(_VALUES, data)
        _hits(_KEYS, data)


def _hits(patterns: tuple[re.Pattern[bytes], ...], data: bytes) -> list[int]:
    """Find the places that are suspicious."""
    found = itertools.chain.from_iterable(pattern.finditer(data) for pattern in patterns)
    hits = [hit.start() for hit in itertools.islice(found, MAX_ATTRIBUTES + 1)]
    if len(hits) > MAX_ATTRIBUTES:
        raise TooLargeError(f"has more than {MAX_ATTRIBUTES} places to look at")
    return hits


def _has_no_other_value(metric: bytes, place: int) -> bool:
    """Say whether a metric is written as usual and has one data point, whose value is the double at a place.

    It is then a name and a gauge or sum of one point, which has times, a value and at most one attribute.
    """
    # Behind three tags and lengths: of the name, of the data and of the point.
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
        and metric[end:] in _BEHIND_THE_POINT
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
    """One pass over a push: removes NaN and infinite values of gauges and sums, and owned attributes.

    What is emptied by that is removed with it: the metric, its ScopeMetrics, its ResourceMetrics.

    Attributes:
        dropped_points: Data points dropped so far.
        removed_labels: Attributes removed so far.
    """

    __slots__ = ("_attributes", "_looked_at", "dropped_points", "removed_labels")

    def __init__(self) -> None:
        self.dropped_points = 0
        self.removed_labels = 0
        self._looked_at = 0
        self._attributes = 0

    def scrub(self, metrics: MetricsData) -> None:
        """Scrub a whole push in place.

        Raises:
            TooLargeError: There are more than :data:`MAX_SCRUBBED` messages to look at, or more than
                :data:`MAX_ATTRIBUTES` attributes.
        """
        keep(metrics.resource_metrics, [self._keeps_resource(item) for item in metrics.resource_metrics])

    def scrub_metrics(self, metrics: MutableSequence[bytes]) -> None:
        """Scrub encoded Metric messages in place; only suspicious ones are parsed.

        Args:
            metrics: The messages.

        Raises:
            TooLargeError: More than :data:`MAX_SCRUBBED` messages are suspicious, or have more than
                :data:`MAX_ATTRIBUTES` attributes.
        """
        apart = list(metrics)
        together = b"".join(apart)
        ends = list(itertools.accumulate(map(len, apart)))
        odd_values = {bisect_right(ends, hit): hit for hit in _hits(_VALUES, together)}
        odd_keys = {bisect_right(ends, hit) for hit in _hits(_KEYS, together)}
        refuse_too_many(len(odd_values.keys() | odd_keys))
        emptied = []
        for index in sorted(odd_values.keys() | odd_keys):
            if index not in odd_keys and _has_no_other_value(
                apart[index], odd_values[index] - ends[index] + len(apart[index])
            ):
                self.dropped_points += 1
                emptied.append(index)
                continue
            metric = Metric.FromString(apart[index])
            before = self.dropped_points + self.removed_labels
            if not self._keeps_metric(metric, with_labels=index in odd_keys):
                emptied.append(index)
            elif self.dropped_points + self.removed_labels > before:
                metrics[index] = metric.SerializeToString()
        if len(emptied) > _FEW:
            gone = frozenset(emptied)
            metrics[:] = [metric for index, metric in enumerate(metrics) if index not in gone]
        else:
            for index in reversed(emptied):
                del metrics[index]

    def scrub_resource(self, resource: bytes, occurrences: int) -> bytes:
        """Scrub an encoded Resource that a push has so many times; without an owned key it stays as it is.

        Raises:
            TooLargeError: It has more than :data:`MAX_ATTRIBUTES` attributes.
        """
        if not may_need_scrubbing(resource):
            return resource
        parsed = Resource.FromString(resource)
        before = self.removed_labels
        self._remove_labels(parsed.attributes)
        removed = self.removed_labels - before
        self.removed_labels += removed * (occurrences - 1)
        return parsed.SerializeToString() if removed else resource

    def _keeps_resource(self, resource_metrics: Any) -> bool:
        self._look_at(1)
        self._remove_labels(resource_metrics.resource.attributes)
        kept = [self._keeps_scope(item) for item in resource_metrics.scope_metrics]
        return keep(resource_metrics.scope_metrics, kept)

    def _keeps_scope(self, scope_metrics: Any) -> bool:
        self._look_at(1)
        self._remove_labels(scope_metrics.scope.attributes)
        kept = [self._keeps_metric(item, with_labels=True) for item in scope_metrics.metrics]
        return keep(scope_metrics.metrics, kept)

    def _keeps_metric(self, metric: Any, *, with_labels: bool) -> bool:
        self._look_at(1)
        kind = metric.WhichOneof("data")
        if kind is None:
            return True
        points = getattr(metric, kind).data_points
        self._look_at(len(points))
        if with_labels:
            self._remove_labels_of(points)
        if kind not in ("gauge", "sum"):
            return True
        kept = [
            point.WhichOneof("value") != "as_double" or math.isfinite(point.as_double) for point in points
        ]
        self.dropped_points += kept.count(False)
        return keep(points, kept)

    def _remove_labels_of(self, points: Any) -> None:
        for point in points:
            self._remove_labels(point.attributes)
            exemplars = getattr(point, "exemplars", ())
            self._look_at(len(exemplars))
            for exemplar in exemplars:
                self._remove_labels(exemplar.filtered_attributes)

    def _remove_labels(self, attributes: Any) -> None:
        # Not one by one: each deletion moves all that follow.
        self._look_at_attributes(len(attributes))
        kept = [attribute.key not in _OWNED for attribute in attributes]
        self.removed_labels += kept.count(False)
        keep(attributes, kept)

    def _look_at_attributes(self, attributes: int) -> None:
        self._attributes += attributes
        if self._attributes > MAX_ATTRIBUTES:
            raise TooLargeError(f"has more than {MAX_ATTRIBUTES} attributes to look at")

    def _look_at(self, messages: int) -> None:
        self._looked_at += messages
        refuse_too_many(self._looked_at)


def keep(items: Any, kept: list[bool]) -> bool:
    """Remove the items that are not kept; say whether the list is as it was or still has some."""
    if False not in kept:
        return True
    remaining = [item for item, wanted in zip(items, kept, strict=True) if wanted]
    del items[:]
    items.extend(remaining)
    return bool(remaining)
