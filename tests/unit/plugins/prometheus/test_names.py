"""Names follow OpenTelemetry's rules. An integration test compares Prometheus's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from plugins._shared.attribute_text import attribute_text
from plugins._shared.cumulative import Kind
from plugins.prometheus.names import label_name, labels_of, metric_name


@pytest.mark.parametrize(
    ("name", "unit", "kind", "expected"),
    [
        ("a.b-c", "", Kind.GAUGE, "a_b_c"),
        ("a..b__c.", "", Kind.GAUGE, "a_b_c"),
        ("9lives", "", Kind.GAUGE, "_9lives"),
        ("ns:a", "", Kind.GAUGE, "ns:a"),
        ("ä", "", Kind.GAUGE, "_"),
        ("latency", "ms", Kind.GAUGE, "latency_milliseconds"),
        ("latency.milliseconds.avg", "ms", Kind.GAUGE, "latency_milliseconds_avg"),
        ("wait.total", "ns", Kind.COUNTER, "wait_nanoseconds_total"),
        ("wait.total", "", Kind.UP_DOWN, "wait_total"),
        ("sent", "By", Kind.COUNTER, "sent_bytes_total"),
        ("total.sent", "By", Kind.COUNTER, "sent_bytes_total"),
        ("rate", "By/s", Kind.GAUGE, "rate_bytes_per_second"),
        ("rate", "{record}/s", Kind.GAUGE, "rate_per_second"),
        ("records", "{record}", Kind.GAUGE, "records"),
        ("idle.ratio.avg", "1", Kind.GAUGE, "idle_avg_ratio"),
        ("done", "1", Kind.COUNTER, "done_total"),
        ("speed", "furlong/fortnight", Kind.GAUGE, "speed_furlong_per_fortnight"),
        ("size", "By", Kind.HISTOGRAM, "size_bytes"),
    ],
)
def test_metric_names(name: str, unit: str, kind: Kind, expected: str) -> None:
    assert metric_name(name, unit, kind).name == expected


def test_units_in_words() -> None:
    assert metric_name("a", "By/s", Kind.GAUGE).unit == "bytes_per_second"
    assert metric_name("a", "1", Kind.GAUGE).unit == "ratio"
    assert metric_name("a", "{x}", Kind.GAUGE).unit == ""


def test_a_counters_family_has_no_suffix() -> None:
    assert metric_name("a", "s", Kind.COUNTER).family == "a_seconds"
    assert metric_name("a", "s", Kind.GAUGE).family == "a_seconds"


@pytest.mark.parametrize(
    ("kind", "samples", "more"),
    [
        (Kind.GAUGE, {"a"}, set()),
        (Kind.COUNTER, {"a_total"}, {"a", "a_created"}),
        (Kind.HISTOGRAM, {"a", "a_bucket", "a_count", "a_sum"}, {"a_created"}),
        (Kind.SUMMARY, {"a", "a_count", "a_sum"}, {"a_created"}),
    ],
)
def test_the_sample_names_of_each_type(kind: Kind, samples: set[str], more: set[str]) -> None:
    name = metric_name("a", "", kind)
    assert set(name.samples) == samples
    assert sorted(name.openmetrics) == sorted(samples | more)


@given(st.text(), st.text(), st.sampled_from(Kind))
def test_every_name_is_valid_in_prometheus(name: str, unit: str, kind: Kind) -> None:
    made = metric_name(name, unit, kind).name
    assert made
    assert made.isascii()
    assert all(c.isalnum() or c in "_:" for c in made)
    assert not made[0].isdigit()
    assert "__" not in made


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("client_id", "client_id"),
        ("a.b", "a_b"),
        ("a..b", "a_b"),
        ("9", "key_9"),
        ("__name__", "_name_"),
        ("", "_"),
    ],
)
def test_label_names(key: str, expected: str) -> None:
    assert label_name(key) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"string_value": "x"}, "x"),
        ({"int_value": -5}, "-5"),
        ({"double_value": 1.5}, "1.5"),
        ({"bool_value": True}, "true"),
        ({"bytes_value": b"\x00"}, "AA=="),
        ({"array_value": {"values": [{"int_value": 1}, {"string_value": "ü"}]}}, '[1,"ü"]'),
        ({"kvlist_value": {"values": [{"key": "k", "value": {"bool_value": False}}]}}, '{"k":false}'),
        ({}, ""),
    ],
)
def test_label_values(value: Any, expected: str) -> None:
    assert attribute_text(AnyValue(**value)) == expected


def test_attributes_with_the_same_label_name_are_joined_in_key_order() -> None:
    attributes = [
        KeyValue(key=key, value=AnyValue(string_value=value))
        for key, value in (("a_b", "3"), ("a.b", "2"), ("a-b", "1"), ("empty", ""))
    ]
    assert labels_of(attributes, rename=str.upper) == {"A_B": "1;2;3"}
