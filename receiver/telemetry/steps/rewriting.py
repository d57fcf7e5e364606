"""Rewrites attributes in encoded metrics, and parses as few as possible.

- A byte search finds metrics with a key that may need a rewrite. It may find too many, never too
  few.
- For a metric with one data point, the rewrite depends on everything but the point's times and
  value. A cache, shared by all clients, maps the bytes around them to the rewritten bytes.

What an attribute becomes is decided in :mod:`~.attributes` and :mod:`~.privacy`.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from receiver.telemetry.errors import TooLargeError
from receiver.telemetry.labels import length_delimited
from receiver.telemetry.otlp_views import AttributeKeys, MetricList, attribute_keys
from receiver.telemetry.scrub import MAX_ATTRIBUTES, refuse_too_many
from receiver.telemetry.steps.attributes import attributes_of, rewrite
from receiver.telemetry.steps.counts import StepCounts
from receiver.telemetry.steps.privacy import Privacy

#: The maximum number of attributes in one place, and of different keys in a push with privacy
#: rules. Clients have twenty.
MAX_KEYS: Final = 1_000

# Entries of each cache, and the longest message in it.
_CACHE_SIZE: Final = 16_384
_CACHED_BYTES: Final = 512

# Up to so many keys are searched one by one; with more, every metric is parsed.
_MAX_SEARCHES: Final = 16
# With privacy rules, so many metrics, points, exemplars and attributes of a push may be parsed:
# more than the default budget of series for a client with two attributes on each.
_MAX_PRIVATE: Final = 50_000

_KNOWN_BAD: Final = "known_bad"

# In a NumberDataPoint: an optional start_time_unix_nano, time_unix_nano, and as_double or as_int.
_TIMES_AND_VALUE: Final = re.compile(rb"(?:\x11.{8})?\x19.{8}[\x21\x31].{8}", re.DOTALL)
# Their tags, nine bytes apart.
_TAGS: Final = frozenset({b"\x19\x21", b"\x19\x31"})
_WITHOUT_START: Final = 18
_TAGS_WITH_START: Final = frozenset({b"\x11\x19\x21", b"\x11\x19\x31"})
_WITH_START: Final = 27
# Before a key's text: tag and length of the attribute, tag and length of the key.
_BEFORE_A_KEY: Final = 4
_DATA_POINT_TAG: Final = b"\x0a"

# The rewritten bytes before and after times and value, and the counts of dropped and hashed
# attributes.
_Entry = tuple[bytes, bytes, int, int]

# Keys that normalisation changes.
_NORMALIZED: Final = (b"node_id", b"node.id", b"member_id")
# member_id as a whole key: its length comes first, in one byte, or in several that end in a zero.
# Most Resources have a group_member_id.
_MEMBER_ID: Final = re.compile(rb"member_id(?<=[\x00\x09]member_id)")


class AttributeRewriter:
    """Rewrites attributes of encoded messages, and marks wrong metrics."""

    def __init__(self, privacy: Privacy, *, normalize: bool) -> None:
        self._normalize = normalize
        self._privacy = privacy if privacy.attributes else None
        self._entries: dict[tuple[bytes, bytes], _Entry] = {}
        self._marked_entries: dict[tuple[bytes, bytes], _Entry] = {}
        self._resources: dict[bytes, tuple[bytes, int, int]] = {}

    @property
    def for_scopes(self) -> bool:
        """Whether scopes may change."""
        return self._privacy is not None

    def rewrite(
        self, metrics: list[bytes], names: Sequence[bytes], marked: frozenset[int], counts: StepCounts
    ) -> None:
        """Rewrite attributes of points and exemplars of encoded metrics in place.

        ``marked`` has the indexes of the metrics to mark as known to be wrong.

        Raises:
            TooLargeError: Too many messages have to be parsed.
        """
        max_parsed = None if self._privacy is None else _MAX_PRIVATE
        parsed_messages = 0
        suspicious = self._suspicious(metrics)
        for index in marked:
            suspicious.setdefault(index, 0)
        entries = self._entries
        for index, place in suspicious.items():
            metric = metrics[index]
            if marked:
                entries = self._marked_entries if index in marked else self._entries
            # Nearly always, times and value are right before the attribute with the key.
            end = place - _BEFORE_A_KEY
            begin = end - _WITH_START
            if begin < 0 or metric[begin:end:9] not in _TAGS_WITH_START:
                # Probably without a start, else anywhere behind the name.
                begin, after_name = end - _WITHOUT_START, len(names[index])
                if begin < after_name or metric[begin:end:9] not in _TAGS:
                    found = _TIMES_AND_VALUE.search(metric, after_name)
                    begin, end = (0, 0) if found is None else found.span()
            around = (metric[:begin], metric[end:])
            entry = entries.get(around)
            if entry is not None:
                before, after, dropped, hashed = entry
                metrics[index] = before + metric[begin:end] + after
                counts.dropped_attributes += dropped
                counts.hashed_attributes += hashed
                continue
            parsed = Metric.FromString(metric)
            kind = parsed.WhichOneof("data")
            points = getattr(parsed, kind).data_points if kind is not None else ()
            parsed_messages += 1 + len(points)
            refuse_too_many(parsed_messages, max_parsed)
            lists = [parsed.metadata, *attributes_of(points)]
            parsed_messages += len(lists) + sum(map(len, lists))
            refuse_too_many(parsed_messages, max_parsed)
            is_usual = _span(parsed, kind, metric) == (begin, end)
            added = StepCounts()
            changed = self._rewrite(parsed.metadata, added, normalize=False)
            if self._rewrite_points(points, added, mark=index in marked) or changed:
                metrics[index] = parsed.SerializeToString()
            counts.dropped_attributes += added.dropped_attributes
            counts.hashed_attributes += added.hashed_attributes
            span = _span(parsed, kind, metrics[index])
            if is_usual and span is not None and len(metric) <= _CACHED_BYTES:
                if len(entries) >= _CACHE_SIZE:
                    entries.clear()
                before, after = metrics[index][: span[0]], metrics[index][span[1] :]
                entries[around] = (before, after, added.dropped_attributes, added.hashed_attributes)

    def resource(self, resource: bytes, counts: StepCounts, occurrences: int = 1) -> bytes:
        """Rewrite an encoded Resource's attributes.

        A push has it ``occurrences`` times.

        Raises:
            TooLargeError: Privacy rules apply, and it has too many.
        """
        if self._privacy is None and not (
            self._normalize
            and (b"node_id" in resource or b"node.id" in resource or _MEMBER_ID.search(resource))
        ):
            return resource
        known = self._resources.get(resource)
        if known is None:
            parsed = Resource.FromString(resource)
            if self._privacy is None and len(parsed.attributes) > MAX_KEYS:
                counts.unnormalized = True
                return resource
            added = StepCounts()
            self._rewrite(parsed.attributes, added, normalize=self._normalize)
            known = parsed.SerializeToString(), added.dropped_attributes, added.hashed_attributes
            if len(resource) <= _CACHED_BYTES:
                if len(self._resources) >= _CACHE_SIZE:
                    self._resources.clear()
                self._resources[resource] = known
        rewritten, dropped, hashed = known
        counts.dropped_attributes += dropped * occurrences
        counts.hashed_attributes += hashed * occurrences
        return rewritten

    def scope(self, scope: bytes, counts: StepCounts) -> bytes:
        """Apply the privacy rules to an encoded InstrumentationScope.

        Raises:
            TooLargeError: It has too many attributes.
        """
        parsed = InstrumentationScope.FromString(scope)
        changed = self._rewrite(parsed.attributes, counts, normalize=False)
        if self._privacy is not None:
            name = self._privacy.scope_name(parsed.name)
            changed |= name != parsed.name
            parsed.name = name
        return bytes(parsed.SerializeToString()) if changed else scope

    def _suspicious(self, metrics: Sequence[bytes]) -> dict[int, int]:
        """Return the indexes of metrics to rewrite, each with the place of a key."""
        texts = set(_NORMALIZED) if self._normalize else set()
        max_places = MAX_ATTRIBUTES
        if self._privacy is not None:
            max_places = _MAX_PRIVATE
            view = AttributeKeys.FromString(MetricList(metrics=metrics).SerializeToString())
            keys, nested = attribute_keys(view)
            if len(keys) > MAX_KEYS:
                raise TooLargeError(f"has attributes with more than {MAX_KEYS} different keys")
            texts.update(key for key in keys if self._has_rule(key.decode()))
            # An empty key cannot be searched for.
            if nested or self._has_rule("") or len(texts) > _MAX_SEARCHES:
                return dict.fromkeys(range(len(metrics)), 0)
        together = b"".join(metrics)
        starts: list[int] = []
        found: dict[int, int] = {}
        for text in texts:
            parts = together.split(text, max_places + 1)
            if len(parts) - 1 > max_places:
                raise TooLargeError(f"has more than {max_places} attributes to rewrite")
            if len(parts) > 1:
                starts = starts or [0, *itertools.accumulate(map(len, metrics))]
                place = 0
                for part in itertools.islice(parts, len(parts) - 1):
                    place += len(part)
                    index = bisect_right(starts, place) - 1
                    if index not in found:
                        found[index] = place - starts[index]
                    place += len(text)
                    # A match that crosses into the next metric may hide a key there.
                    while starts[index + 1] < place:
                        index += 1
                        found.setdefault(index, 0)
        return found

    def _has_rule(self, key: str) -> bool:
        return self._privacy is not None and self._privacy.attribute(key, key) is not None

    def _rewrite_points(self, points: Any, counts: StepCounts, *, mark: bool) -> bool:
        changed = False
        for attributes in attributes_of(points):
            changed |= self._rewrite(attributes, counts, normalize=self._normalize)
        if mark:
            for point in points:
                if all(attribute.key != _KNOWN_BAD for attribute in point.attributes):
                    point.attributes.add(key=_KNOWN_BAD).value.bool_value = True
                    changed = True
        return changed

    def _rewrite(self, attributes: Any, counts: StepCounts, *, normalize: bool) -> bool:
        if len(attributes) > MAX_KEYS:
            raise TooLargeError(f"has more than {MAX_KEYS} attributes in one place")
        return rewrite(attributes, normalize=normalize, privacy=self._privacy, counts=counts)


def _span(parsed: Any, kind: str | None, metric: bytes) -> tuple[int, int] | None:
    """Return the span of the times and the value of a metric's only data point.

    None unless the metric is in the usual encoding, so that the bytes before and after the span
    determine everything else.
    """
    if kind is None:
        return None
    data = getattr(parsed, kind)
    written = data.SerializeToString()
    if len(data.data_points) != 1 or parsed.SerializeToString() != metric or not metric.endswith(written):
        return None
    point = data.data_points[0].SerializeToString()
    found = _TIMES_AND_VALUE.match(point)
    if found is None:
        return None
    begin = len(metric) - len(written) + len(length_delimited(_DATA_POINT_TAG, point)) - len(point)
    return begin, begin + found.end()
