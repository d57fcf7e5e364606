"""Attributes rewritten in encoded messages.

Owns how the messages that have something to rewrite are found, and how few of them are parsed:

- A search over the bytes finds the metrics with a key that may have to be rewritten: it may find too many,
  and never too few.
- Of a metric with one data point, what is rewritten depends on all but the point's times and its value. What
  becomes of it is remembered by that, for all clients.

It must not know what becomes of an attribute.
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
from receiver.telemetry.steps.attributes import AttributeCounts, attributes_of, rewrite
from receiver.telemetry.steps.privacy import Privacy

__all__ = ["MAX_KEYS", "AttributeRewriter"]

#: Attributes of one thing, and different keys in a push where rules are tried on each; clients have twenty.
MAX_KEYS: Final = 1_000

#: So many metrics are remembered without their times and values, and so many Resources, none of more bytes.
_REMEMBERED: Final = 16_384
_REMEMBERED_BYTES: Final = 512

#: More keys than these are not searched for one by one.
_MAX_SEARCHES: Final = 16
#: Metrics, points, exemplars and attributes in a push that are looked at one by one where rules have to be
#: kept: more than the budget of series leaves of a client with two attributes on each.
_MAX_PRIVATE: Final = 50_000

_KNOWN_BAD: Final = "known_bad"

#: Of a NumberDataPoint: start_time_unix_nano, which not all have, time_unix_nano, and as_double or as_int.
_TIMES_AND_VALUE: Final = re.compile(rb"(?:\x11.{8})?\x19.{8}[\x21\x31].{8}", re.DOTALL)
#: Their tags, nine bytes from each other.
_TAGS: Final = frozenset({b"\x19\x21", b"\x19\x31"})
_WITHOUT_START: Final = 18
_TAGS_WITH_START: Final = frozenset({b"\x11\x19\x21", b"\x11\x19\x31"})
_WITH_START: Final = 27
#: In front of a key's text: tag and length of the attribute, tag and length of the key.
_BEFORE_A_KEY: Final = 4
_DATA_POINT_TAG: Final = b"\x0a"

#: What becomes of what is in front of times and value and of what is behind, and how many attributes are
#: dropped and hashed.
_Entry = tuple[bytes, bytes, int, int]


#: Keys of what is normalised.
_NORMALIZED: Final = (b"node_id", b"node.id", b"member_id")
#: The latter behind its length, which is in one byte, or in more that end in a zero: most Resources have a
#: group_member_id.
_MEMBER_ID: Final = re.compile(rb"member_id(?<=[\x00\x09]member_id)")


class AttributeRewriter:
    """Rewrites attributes, and marks metrics whose values are known to be wrong.

    Args:
        normalize: Whether attributes are normalised.
        privacy: The operator's rules.
    """

    __slots__ = ("_entries", "_marked_entries", "_normalize", "_privacy", "_resources", "_scope_names")

    def __init__(self, privacy: Privacy, *, normalize: bool) -> None:
        self._normalize = normalize
        self._privacy = privacy if privacy.attributes else None
        self._scope_names = privacy.scope_name if privacy.hides_client_ids else None
        self._entries: dict[tuple[bytes, bytes], _Entry] = {}
        self._marked_entries: dict[tuple[bytes, bytes], _Entry] = {}
        self._resources: dict[bytes, tuple[bytes, int, int]] = {}

    @property
    def for_scopes(self) -> bool:
        """Whether there is anything to do to scopes."""
        return self._privacy is not None

    def rewrite(
        self, metrics: list[bytes], names: Sequence[bytes], marked: frozenset[int], counts: AttributeCounts
    ) -> None:
        """Rewrite the attributes of data points and exemplars, in place.

        Args:
            metrics: Encoded metrics.
            names: Their encoded names.
            marked: Which of them are marked, by index.
            counts: Where to count what was dropped and hashed.

        Raises:
            TooLargeError: There is too much to look at one by one.
        """
        most = None if self._privacy is None else _MAX_PRIVATE
        looked_at = 0
        suspicious = self._suspicious(metrics)
        for index in marked:
            suspicious.setdefault(index, 0)
        entries = self._entries
        for index, place in suspicious.items():
            metric = metrics[index]
            if marked:
                entries = self._marked_entries if index in marked else self._entries
            # The guess that is nearly always right: they are right in front of the attribute with the key.
            end = place - _BEFORE_A_KEY
            begin = end - _WITH_START
            if begin < 0 or metric[begin:end:9] not in _TAGS_WITH_START:
                begin, end = _times_and_value(metric, end, len(names[index]))
            around = (metric[:begin], metric[end:])
            entry = entries.get(around)
            if entry is not None:
                before, after, dropped, hashed = entry
                metrics[index] = before + metric[begin:end] + after
                if dropped or hashed:
                    counts.dropped += dropped
                    counts.hashed += hashed
                continue
            parsed = Metric.FromString(metric)
            kind = parsed.WhichOneof("data")
            points = getattr(parsed, kind).data_points if kind is not None else ()
            looked_at += 1 + len(points)
            refuse_too_many(looked_at, most)
            lists = [parsed.metadata, *attributes_of(points)]
            looked_at += len(lists) + sum(map(len, lists))
            refuse_too_many(looked_at, most)
            is_as_usual = _span(parsed, kind, metric) == (begin, end)
            here = AttributeCounts()
            changed = self._rewrite(parsed.metadata, here, normalize=False)
            if self._rewrite_points(points, here, mark=index in marked) or changed:
                metrics[index] = parsed.SerializeToString()
            counts.dropped += here.dropped
            counts.hashed += here.hashed
            span = _span(parsed, kind, metrics[index])
            if is_as_usual and span is not None and len(metric) <= _REMEMBERED_BYTES:
                if len(entries) >= _REMEMBERED:
                    entries.clear()
                before, after = metrics[index][: span[0]], metrics[index][span[1] :]
                entries[around] = (before, after, here.dropped, here.hashed)

    def resource(self, resource: bytes, counts: AttributeCounts) -> bytes:
        """Rewrite the attributes of an encoded Resource.

        Raises:
            TooLargeError: It has too many.
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
                counts.passed_over = True
                return resource
            here = AttributeCounts()
            self._rewrite(parsed.attributes, here, normalize=self._normalize)
            known = parsed.SerializeToString(), here.dropped, here.hashed
            if len(resource) <= _REMEMBERED_BYTES:
                if len(self._resources) >= _REMEMBERED:
                    self._resources.clear()
                self._resources[resource] = known
        rewritten, dropped, hashed = known
        counts.dropped += dropped
        counts.hashed += hashed
        return rewritten

    def scope(self, scope: bytes, counts: AttributeCounts) -> bytes:
        """Do what rules say to an encoded InstrumentationScope.

        Raises:
            TooLargeError: It has too many attributes.
        """
        parsed = InstrumentationScope.FromString(scope)
        changed = self._rewrite(parsed.attributes, counts, normalize=False)
        if self._scope_names is not None:
            name = self._scope_names(parsed.name)
            changed |= name != parsed.name
            parsed.name = name
        return bytes(parsed.SerializeToString()) if changed else scope

    def _suspicious(self, metrics: Sequence[bytes]) -> dict[int, int]:
        """Find the metrics that may have an attribute to rewrite: by index, with the place of a key's text.

        Raises:
            TooLargeError: There is too much of it.
        """
        texts = set(_NORMALIZED) if self._normalize else set()
        most = MAX_ATTRIBUTES
        if self._privacy is not None:
            most = _MAX_PRIVATE
            view = AttributeKeys.FromString(MetricList(metrics=metrics).SerializeToString())
            keys, nested = attribute_keys(view)
            if len(keys) > MAX_KEYS:
                raise TooLargeError(f"has attributes with more than {MAX_KEYS} different keys")
            texts.update(key for key in keys if self._is_ruled(key.decode()))
            # An attribute without a key has nothing that could be searched for.
            if nested or self._is_ruled("") or len(texts) > _MAX_SEARCHES:
                return dict.fromkeys(range(len(metrics)), 0)
        together = b"".join(metrics)
        starts: list[int] = []
        found: dict[int, int] = {}
        for text in texts:
            parts = together.split(text, most + 1)
            if len(parts) - 1 > most:
                raise TooLargeError(f"has more than {most} places to look at")
            if len(parts) > 1:
                starts = starts or [0, *itertools.accumulate(map(len, metrics))]
                place = 0
                for part in itertools.islice(parts, len(parts) - 1):
                    place += len(part)
                    index = bisect_right(starts, place) - 1
                    if index not in found:
                        found[index] = place - starts[index]
                    place += len(text)
                    # Where it ends in another metric, a key may begin there that it hides.
                    while starts[index + 1] < place:
                        index += 1
                        found.setdefault(index, 0)
        return found

    def _is_ruled(self, key: str) -> bool:
        return self._privacy is not None and self._privacy.attribute(key, key) is not None

    def _rewrite_points(self, points: Any, counts: AttributeCounts, *, mark: bool) -> bool:
        changed = False
        for attributes in attributes_of(points):
            changed |= self._rewrite(attributes, counts, normalize=self._normalize)
        if mark:
            for point in points:
                if all(attribute.key != _KNOWN_BAD for attribute in point.attributes):
                    point.attributes.add(key=_KNOWN_BAD).value.bool_value = True
                    changed = True
        return changed

    def _rewrite(self, attributes: Any, counts: AttributeCounts, *, normalize: bool) -> bool:
        if len(attributes) > MAX_KEYS:
            raise TooLargeError(f"has more than {MAX_KEYS} attributes in one place")
        return rewrite(attributes, normalize=normalize, privacy=self._privacy, counts=counts)


def _times_and_value(metric: bytes, guess: int, start: int) -> tuple[int, int]:
    """Guess where the times and the value of a metric's only data point are.

    Args:
        metric: The encoded metric.
        guess: Where they may end.
        start: Where they cannot be in front of.

    Returns:
        Where they begin and end; 0 and 0 where nothing looks like it.
    """
    begin = guess - _WITHOUT_START
    if begin >= start and metric[begin:guess:9] in _TAGS:
        return begin, guess
    found = _TIMES_AND_VALUE.search(metric, start)
    return found.span() if found is not None else (0, 0)


def _span(parsed: Any, kind: str | None, metric: bytes) -> tuple[int, int] | None:
    """Say where the times and the value of a metric's only data point are.

    That is, where the metric is written so that whatever is in front of them and behind tells everything but
    them; None where it is not.
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
