"""Fuzzes the steps on a push's metrics with real pushes, changed by field and by byte.

An input's first byte says which steps are on, its second how many series there may be. What comes
out is compared with the plainest way to do the same.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.settings.metric_processing import NormalizationSettings, PrivacySettings
from receiver.telemetry.errors import PushError
from receiver.telemetry.otlp import LabelledMetrics, label_metrics
from receiver.telemetry.otlp_views import DATA_KINDS, Counted, MetricList, OneScope
from receiver.telemetry.scrub import Scrubber
from receiver.telemetry.steps.metrics import MetricSteps, SeriesBound
from receiver.telemetry.steps.steps import Steps
from tests.fuzz import protobuf
from tests.fuzz.target import Target, require
from tests.fuzz.targets import otlp
from tests.property.telemetry.steps_oracle import KEY, Oracle

_MAX_BYTES = 6000
_MAX_ENTRIES = 1000
_BAD = (r"org\.apache\.kafka\..*\.(?:rate|avg)",)
_RULES = (
    {"attribute": "client.*|member_id|s.*", "action": "hash"},
    {"attribute": "topic|node_role|other", "action": "drop"},
    {"metric": ".*max", "action": "drop"},
)
_ON = {"descriptions": True}

#: The configurations.
_SETTINGS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    (_ON, {"rules": _RULES, "pseudonymize": ("client_id",), "key": {"file": "key"}}),
    (
        _ON | {"known_bad_values": "mark"},
        {"rules": _RULES, "pseudonymize": ("client_id",), "key": {"file": "key"}},
    ),
    ({}, {}),
    ({"known_bad_values": "mark"}, {}),
    ({}, {"rules": ({"attribute": ".*", "action": "drop"},)}),
    (
        {"attributes": False, "units": False, "known_bad_values": "keep"},
        {"rules": ({"attribute": "node.id", "action": "hash"},), "key": {"file": "key"}},
    ),
)
_MAX_SERIES = (None, 0, 1, 2, 3, 7, 20)


def _configuration(
    normalization: dict[str, Any], privacy: dict[str, Any]
) -> tuple[NormalizationSettings, PrivacySettings, MetricSteps]:
    normalized = NormalizationSettings.model_validate(normalization)
    private = PrivacySettings.model_validate(privacy)
    return normalized, private, Steps(normalized, private, KEY).for_client(_BAD)


#: Built once, so that their caches are used across inputs.
_CONFIGURATIONS = [_configuration(*settings) for settings in _SETTINGS]


def _run(data: bytes) -> None:
    if len(data) < 3:
        return
    normalization, privacy, steps = _CONFIGURATIONS[data[0] % len(_CONFIGURATIONS)]
    max_series = _MAX_SERIES[data[1] % len(_MAX_SERIES)]
    metrics = data[2:]
    try:
        label_metrics(metrics, b"", max_entries=_MAX_ENTRIES)
    except PushError:
        return
    # So few bytes never reach the bound of work.
    labelled = label_metrics(
        metrics, b"", max_entries=_MAX_ENTRIES, steps=steps, bound=SeriesBound(max_series=max_series)
    )
    if _has_replaced_data(metrics):
        return
    push = MetricsData.FromString(metrics)
    if not any(scope.metrics for resource in push.resource_metrics for scope in resource.scope_metrics):
        require(not labelled.data, "metrics came out of an empty push")
        return
    # Scrubbing itself is tested by the otlp target.
    Scrubber().scrub(push)
    oracle = Oracle(normalization=normalization, privacy=privacy, bad_metrics=_BAD, max_series=max_series)
    expected = _apart(oracle.apply(push))
    require(_apart(MetricsData.FromString(labelled.data)) == expected, "other metrics came out")
    counts, counted = oracle.counts, _counts(labelled)
    if labelled.dropped_points:
        # The encoding decides whether Resources of dropped points are counted.
        for count in ("dropped", "hashed"):
            del counts[count], counted[count]
    require(counted == counts, f"counted {counted}, not {counts}")


def _has_replaced_data(data: bytes) -> bool:
    """Return whether a metric has two kinds of data: both are counted, the last is parsed."""
    metrics = OneScope.FromString(data).resource_metrics.scope_metrics.metrics
    seen = (
        Counted.FromString(MetricList(metrics=[metric]).SerializeToString()).metrics for metric in metrics
    )
    return any(sum(map(metric.HasField, DATA_KINDS)) > 1 for metric in seen)


def _apart(push: MetricsData) -> Counter[tuple[bytes, ...]]:
    """Count the metrics by origin and content."""
    return Counter(
        (
            _text(resource_metrics.resource),
            resource_metrics.schema_url.encode(),
            _text(scope_metrics.scope),
            scope_metrics.schema_url.encode(),
            _text(metric),
        )
        for resource_metrics in push.resource_metrics
        for scope_metrics in resource_metrics.scope_metrics
        for metric in scope_metrics.metrics
    )


def _text(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def _counts(labelled: LabelledMetrics) -> dict[str, int]:
    steps = labelled.steps
    require(not steps.unnormalized, "a small push was passed over")
    return {
        "bad": steps.bad_points,
        "marked": steps.marked_points,
        "private": steps.private_points,
        "dropped": steps.dropped_attributes,
        "hashed": steps.hashed_attributes,
        "series": labelled.series,
        "over": labelled.overflowed,
    }


def _seeds() -> list[bytes]:
    return [
        bytes([configuration, max_series]) + seed
        for number, seed in enumerate(otlp.TARGET.seeds())
        for configuration in range(len(_CONFIGURATIONS))
        for max_series in (0, 1 + (number + configuration) % (len(_MAX_SERIES) - 1))
        if len(seed) <= _MAX_BYTES - 2
    ]


def _attribute(key: bytes, value: bytes) -> bytes:
    content = b"\x0a%c%b\x12%c%b" % (len(key), key, len(value), value)
    return b"\x3a%c%b" % (len(content), content)


_TOKENS = (
    *otlp.TARGET.tokens,
    *(
        _attribute(key, value)
        for key in (b"node_id", b"node.id", b"node_role", b"member_id", b"known_bad", b"topic", b"secret")
        for value in (
            b"\x0a\x06node-1",
            b"\x0a\x07node--2",
            b"\x18\x01",
            b"\x18" + b"\xff" * 9 + b"\x01",
            b"",
        )
    ),
    b"node_id",
    b"member_id",
    b"kafka#id",
    b"node-+2147483647",
    b"org.apache.kafka.consumer.connection.creation.rate",
    b"\x1a\x00",
    b"\x12\x01d",
    b"\x3a\x00",
    b"\x2a\x00",
    b"\x2a\x02\x0a\x00",
    b"\x4a\x02\x0a\x00",
    b"\x5a\x02\x0a\x00",
)


def _reshape(data: bytes, random: Random) -> bytes:
    head = data[:2] if random.random() < 0.5 else random.randbytes(2)
    data = data[2:]
    for _ in range(1 + int(random.random() * 3)):
        data = protobuf.reshape(data, random, _TOKENS)
    return head + data


TARGET = Target(
    name="steps",
    run=_run,
    seeds=_seeds,
    tokens=_TOKENS,
    reshape=_reshape,
    max_bytes=_MAX_BYTES,
    max_memory=32 << 20,
    brief=3_000,
)
