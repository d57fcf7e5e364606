"""OTLP enrichment: real pushes, changed in protobuf's terms and byte by byte.

What comes out is compared with a plain way to do the same: parse all, look at all.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.telemetry.errors import PushError
from receiver.telemetry.identity import Broker
from receiver.telemetry.labels import OWNED_LABELS, identity_labels, label_bytes
from receiver.telemetry.otlp import label_metrics
from receiver.telemetry.selectors import reveal
from receiver.wire.uuid import Uuid
from tests.fuzz import protobuf
from tests.fuzz.target import Target, require
from tests.unit.session.support import connection

_PAYLOADS = Path(__file__).parents[2] / "data" / "payloads"
_OWNED = frozenset(OWNED_LABELS)
_FACTS = identity_labels(
    replace(
        connection("SASL_SSL"),
        client_instance_id=Uuid(bytes(15) + b"\x07"),
        broker=Broker(id=1, cluster_id="cluster"),
    ),
)
_LABEL_BYTES = label_bytes(_FACTS)
_LABELS = {
    key: str(value).encode() for key, value in zip(OWNED_LABELS, _FACTS, strict=True) if value is not None
}


def _run(data: bytes) -> None:
    if not data:
        return
    try:
        labelled = label_metrics(data, _LABEL_BYTES, max_entries=_MAX_ENTRIES)
    except PushError:
        return
    if labelled.resource is not None:
        reveal(labelled.resource)
    try:
        before = MetricsData.FromString(data)
    except DecodeError:
        require(False, "what is no MetricsData was labelled")
        return
    if not any(scope.metrics for resource in before.resource_metrics for scope in resource.scope_metrics):
        require(not labelled.data, "out of no metrics came something")
        return
    after = MetricsData.FromString(labelled.data)
    expected, dropped, removed = _kept(before)
    # Merged Resources are counted once, so the exact number is unknown.
    require(labelled.dropped_points == dropped, f"{labelled.dropped_points} points dropped, not {dropped}")
    require((labelled.removed_labels > 0) == (removed > 0), "labels removed, or not, against what was there")
    found: Counter[bytes] = Counter()
    for resource_metrics in after.resource_metrics:
        owned = [attribute for attribute in resource_metrics.resource.attributes if attribute.key in _OWNED]
        require(
            {attribute.key: attribute.value.string_value.encode() for attribute in owned} == _LABELS
            and len(owned) == len(_LABELS),
            "a Resource has other labels than ours",
        )
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                found[metric.SerializeToString(deterministic=True)] += 1
    require(found == expected, "other metrics came out than went in")


def _kept(data: MetricsData) -> tuple[Counter[bytes], int, int]:
    """Return the expected metrics, and the numbers of dropped points and removed labels."""
    dropped = removed = 0
    metrics: Counter[bytes] = Counter()

    def clean(attributes: object) -> int:
        kept = [attribute for attribute in attributes if attribute.key not in _OWNED]  # type: ignore[attr-defined]
        gone: int = len(attributes) - len(kept)  # type: ignore[arg-type]
        if gone:
            del attributes[:]  # type: ignore[attr-defined]
            attributes.extend(kept)  # type: ignore[attr-defined]
        return gone

    for resource_metrics in data.resource_metrics:
        removed += clean(resource_metrics.resource.attributes)
        for scope_metrics in resource_metrics.scope_metrics:
            removed += clean(scope_metrics.scope.attributes)
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data")
                if kind is not None:
                    points = getattr(metric, kind).data_points
                    for point in points:
                        removed += clean(point.attributes)
                        for exemplar in getattr(point, "exemplars", ()):
                            removed += clean(exemplar.filtered_attributes)
                    if kind in ("gauge", "sum"):
                        kept = [
                            point
                            for point in points
                            if point.WhichOneof("value") != "as_double" or math.isfinite(point.as_double)
                        ]
                        if len(kept) < len(points):
                            dropped += len(points) - len(kept)
                            del points[:]
                            points.extend(kept)
                            if not kept:
                                continue
                metrics[metric.SerializeToString(deterministic=True)] += 1
    return metrics, dropped, removed


def _seeds() -> list[bytes]:
    captured = sorted((path.read_bytes() for path in _PAYLOADS.glob("*.bin")), key=len)
    seeds = []
    for payload in captured:
        parts = protobuf.fields(payload) or []
        # A part of a large push's Resources covers the same code in less time.
        seeds += [protobuf.join(parts[:3]), protobuf.join(parts[-6:])]
    for payload in captured[:3]:
        seeds.append(payload)
    return sorted({seed for seed in seeds if len(seed) <= _MAX_BYTES}, key=len)


_MAX_BYTES = 6000
_MAX_ENTRIES = 1000
_KEYS = tuple(
    b"\x0a" + bytes([len(content)]) + content
    for key in (*OWNED_LABELS, "other")
    for content in (b"\x0a%c%b\x12\x03\x0a\x01x" % (len(key), key.encode()),)
)
_TOKENS = (
    *(key.encode() for key in OWNED_LABELS),
    *_KEYS,
    b"",
    b"\x0a\x00",
    b"\x12\x00",
    b"\x21\x00\x00\x00\x00\x00\x00\xf8\x7f",
    b"\xa1\x00\x00\x00\x00\x00\x00\x00\xf0\x7f",
    b"\xa1\x80\x00\x00\x00\x00\x00\x00\x00\xf0\xff",
)


def _reshape(data: bytes, random: Random) -> bytes:
    for _ in range(1 + int(random.random() * 3)):
        data = protobuf.reshape(data, random, _TOKENS)
    return data


TARGET = Target(
    name="otlp",
    run=_run,
    seeds=_seeds,
    tokens=_TOKENS,
    reshape=_reshape,
    max_bytes=_MAX_BYTES,
    max_memory=32 << 20,
    brief=6_000,
)
