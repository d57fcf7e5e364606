"""Oracle of the steps: the plainest implementation, on parsed messages, one by one."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from receiver.catalogue import CATALOGUE
from receiver.settings.metric_processing import NormalizationSettings, PrivacySettings

KEY = b"0123456789abcdef"
_MAX_ID = 2**31 - 1


@dataclass(kw_only=True)
class Oracle:
    """The steps of one configuration; its counts are of one push."""

    normalization: NormalizationSettings
    privacy: PrivacySettings
    bad_metrics: tuple[str, ...]
    max_series: int | None
    counts: dict[str, int] = field(default_factory=dict)

    def apply(self, given: MetricsData) -> MetricsData:
        push = MetricsData.FromString(given.SerializeToString())
        self.counts = dict.fromkeys(("bad", "marked", "private", "dropped", "hashed", "series", "over"), 0)
        had = [len(metrics) > 0 for metrics in _lists(push)]
        self._choose(push)
        overflow = self._leave_out(push)
        for resource_metrics in push.resource_metrics:
            self._attributes(resource_metrics.resource.attributes, normalize=True)
        for resource_metrics in push.resource_metrics:
            for scope_metrics in resource_metrics.scope_metrics:
                self._scope(scope_metrics)
                for metric in scope_metrics.metrics:
                    self._metric(metric)
        if overflow is not None:
            scope_metrics, metric = overflow
            scope_metrics.metrics.append(metric)
        emptied = iter([some and not metrics for some, metrics in zip(had, _lists(push), strict=True)])
        for resource_metrics in list(push.resource_metrics):
            left = [scope for scope in resource_metrics.scope_metrics if not next(emptied)]
            if resource_metrics.scope_metrics and not left:
                push.resource_metrics.remove(resource_metrics)
            replace(resource_metrics.scope_metrics, left)
        return push

    # -- metrics ---------------------------------------------------------------------------------

    def _fate(self, name: str) -> str:
        if any(rule.metric and re.fullmatch(rule.metric, name, re.DOTALL) for rule in self.privacy.rules):
            return "private"
        if any(re.fullmatch(pattern, name) for pattern in self.bad_metrics):
            return {"drop": "bad", "mark": "marked", "keep": "kept"}[self.normalization.known_bad_values]
        return "kept"

    def _choose(self, push: MetricsData) -> None:
        for metrics in _lists(push):
            left = []
            for metric in metrics:
                fate = self._fate(metric.name)
                if fate in ("private", "bad"):
                    self.counts[fate] += len(points(metric))
                else:
                    left.append(metric)
            replace(metrics, left)

    def _leave_out(self, push: MetricsData) -> tuple[Any, Metric] | None:
        every = [metric for metrics in _lists(push) for metric in metrics]
        series = sum(len(points(metric)) for metric in every)
        self.counts["series"] = series
        if self.max_series is None or series <= self.max_series:
            return None
        self.counts["over"] = series - self.max_series
        self.counts["series"] = left = self.max_series
        gone = []
        for required in (True, False):
            for index, metric in enumerate(every):
                standard = CATALOGUE.metric(metric.name)
                if (standard is not None and standard.required) is not required:
                    continue
                has = points(metric)
                if not left or len(has) > left:
                    gone.append((index, left, has[-1].time_unix_nano if has else 0))
                    left = 0
                else:
                    left -= len(has)
        first, _, time = min(gone)
        overflow = Metric(name="kafka.client.telemetry.overflow", unit="{point}")
        point = overflow.gauge.data_points.add(as_int=self.counts["over"], time_unix_nano=time)
        point.attributes.add(key="otel.metric.overflow", value=AnyValue(bool_value=True))
        keeps = {index: stays for index, stays, _ in gone}
        index = 0
        home = None
        for resource_metrics in push.resource_metrics:
            for scope_metrics in resource_metrics.scope_metrics:
                stay = []
                for metric in scope_metrics.metrics:
                    if index == first:
                        home = scope_metrics
                    if index in keeps:
                        del points(metric)[keeps[index] :]
                    if index not in keeps or keeps[index]:
                        stay.append(metric)
                    index += 1
                replace(scope_metrics.metrics, stay)
        return home, overflow

    # -- attributes -----------------------------------------------------------------------------

    def _metric(self, metric: Metric) -> None:
        self._attributes(metric.metadata, normalize=False)
        for point in points(metric):
            self._attributes(point.attributes, normalize=True)
            for exemplar in getattr(point, "exemplars", ()):
                self._attributes(exemplar.filtered_attributes, normalize=True)
            marked = self._fate(metric.name) == "marked"
            self.counts["marked"] += marked
            if marked and "known_bad" not in [attribute.key for attribute in point.attributes]:
                point.attributes.add(key="known_bad", value=AnyValue(bool_value=True))
        standard = CATALOGUE.metric(metric.name)
        if standard is not None and self.normalization.units and not metric.unit:
            metric.unit = standard.unit or ""
        if standard is not None and self.normalization.descriptions and not metric.description:
            metric.description = standard.description

    def _scope(self, scope_metrics: Any) -> None:
        if not scope_metrics.HasField("scope"):
            return
        self._attributes(scope_metrics.scope.attributes, normalize=False)
        name = scope_metrics.scope.name
        if "client_id" in self.privacy.pseudonymize and "#" in name:
            client_id, rest = name.rsplit("#", 1)
            scope_metrics.scope.name = f"{hashed(client_id.encode())}#{rest}"

    def _attributes(self, attributes: Any, *, normalize: bool) -> None:
        named = [(attribute.key, attribute) for attribute in attributes]
        if normalize and self.normalization.attributes:
            named = list(normalized(list(attributes)))
        left = []
        for old_key, attribute in named:
            action = self._action(old_key, attribute.key)
            if action == "drop":
                self.counts["dropped"] += 1
            elif action == "hash":
                self.counts["hashed"] += 1
                value = AnyValue(string_value=hashed(plain(attribute.value)))
                left.append(KeyValue(key=attribute.key, value=value))
            else:
                self._nested(attribute.value)
                left.append(attribute)
        replace(attributes, left)

    def _nested(self, value: AnyValue) -> None:
        for item in value.array_value.values if value.HasField("array_value") else ():
            self._nested(item)
        if value.HasField("kvlist_value"):
            self._attributes(value.kvlist_value.values, normalize=False)

    def _action(self, *keys: str) -> str | None:
        for rule in self.privacy.rules:
            if rule.attribute and any(re.fullmatch(rule.attribute, key, re.DOTALL) for key in keys):
                return rule.action
        made_of_it = [
            *("member_id", "group_member_id", "thread_id", "thread-id", "thread.id"),
            *("client.id", "client-id", "messaging.client.id", "messaging.client-id"),
        ]
        if "client_id" in self.privacy.pseudonymize and any(key in made_of_it for key in keys):
            return "hash"
        return None


def normalized(attributes: list[Any]) -> Iterator[tuple[str, Any]]:
    keys = [attribute.key for attribute in attributes]
    has_role = "node_role" in keys
    for attribute in attributes:
        key, value = attribute.key, attribute.value
        if key == "node_id" or (key == "node.id" and "node_id" not in keys):
            known = node(value.string_value if value.HasField("string_value") else value)
            if known:
                yield key, KeyValue(key="node_id", value=AnyValue(string_value=known[0]))
                if not has_role:
                    has_role = True
                    yield "node_role", KeyValue(key="node_role", value=AnyValue(string_value=known[1]))
                continue
        if key == "member_id" and "group_member_id" not in keys:
            yield key, KeyValue(key="group_member_id", value=value)
        elif key == "member_id":
            yield "group_member_id", attribute
        else:
            yield key, attribute


def node(value: Any) -> tuple[str, str] | None:
    if isinstance(value, AnyValue):
        if not value.HasField("int_value"):
            return None
        value = str(value.int_value)
    if value == "bootstrap":
        return "-1", "bootstrap"
    text = value.removeprefix("node-")
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= _MAX_ID):
        return None
    if text.startswith("-"):
        return f"-{int(digits)}", "bootstrap"
    if text.startswith("+"):
        return str(int(digits)), "coordinator"
    if int(digits) > _MAX_ID // 2:
        return str(_MAX_ID - int(digits)), "coordinator"
    return str(int(digits)), "broker"


def plain(value: AnyValue) -> bytes:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value.encode()
    if kind == "bool_value":
        return b"true" if value.bool_value else b"false"
    if kind in ("int_value", "double_value"):
        return str(getattr(value, kind)).encode()
    return bytes(value.SerializeToString(deterministic=True))


def hashed(value: bytes) -> str:
    return hmac.new(KEY, value, hashlib.sha256).hexdigest()[:16]


def points(metric: Metric) -> Any:
    kind = metric.WhichOneof("data")
    return [] if kind is None else getattr(metric, kind).data_points


def _lists(push: MetricsData) -> Iterator[Any]:
    for resource_metrics in push.resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            yield scope_metrics.metrics


def replace(items: Any, left: list[Any]) -> None:
    del items[:]
    items.extend(left)
