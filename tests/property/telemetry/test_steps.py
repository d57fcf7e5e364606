"""The steps against an oracle that parses every message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
    Summary,
    SummaryDataPoint,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from receiver.settings.metric_processing import NormalizationSettings, PrivacyRuleSettings, PrivacySettings
from receiver.telemetry.otlp import LabelledMetrics, label_metrics
from receiver.telemetry.scrub import Scrubber
from receiver.telemetry.steps.metrics import MetricSteps, SeriesBound
from receiver.telemetry.steps.steps import Steps
from tests.property.telemetry.steps_oracle import KEY, Oracle
from tests.property.telemetry.strategies import OddWriter
from tests.property.telemetry.test_otlp import LABELS, received, taken_apart
from tests.unit.telemetry.otlp_parts import MAX_ENTRIES
from tests.unit.telemetry.parts import ALL_PAYLOADS, payload

OFF = {"attributes": False, "units": False, "known_bad_values": "keep"}
BAD = r"org\.apache\.kafka\..*\.(?:rate|avg)"


def rule(action: str, **subject: str) -> PrivacyRuleSettings:
    return PrivacyRuleSettings.model_validate({"action": action} | subject)


def configuration(
    normalization: dict[str, Any], *rules: PrivacyRuleSettings, bad: str | None = None, **privacy: Any
) -> tuple[MetricSteps, NormalizationSettings, PrivacySettings, tuple[str, ...]]:
    normalized = NormalizationSettings.model_validate(normalization)
    private = PrivacySettings.model_validate({"rules": rules, "key": {"file": "key"}} | privacy)
    patterns = () if bad is None else (bad,)
    return Steps(normalized, private, KEY).for_client(patterns), normalized, private, patterns


#: Built once, so that their caches are used across examples.
CONFIGURATIONS = {
    "off": configuration(OFF),
    "default": configuration({}),
    "descriptions": configuration({"descriptions": True}),
    "attributes": configuration(OFF | {"attributes": True}),
    "units": configuration(OFF | {"units": True}),
    "bad dropped": configuration({}, bad=BAD),
    "bad marked": configuration({"known_bad_values": "mark"}, bad=BAD),
    "bad marked only": configuration(OFF | {"known_bad_values": "mark"}, bad=".*"),
    "bad kept": configuration({"known_bad_values": "keep"}, bad=BAD),
    "rules": configuration(
        {}, rule("drop", attribute="topic|node_role"), rule("hash", attribute="secret|member_id")
    ),
    "rules only": configuration(OFF, rule("hash", attribute="topic|node.id"), rule("drop", attribute="s.*")),
    "nodes hashed": configuration({}, rule("hash", attribute="node_id")),
    "no attributes": configuration({}, rule("drop", attribute=".*")),
    "no metrics": configuration({}, rule("drop", metric=".*")),
    "metrics": configuration({}, rule("drop", metric="a|.*total"), bad=BAD),
    "client ids": configuration({}, rule("drop", attribute="topic"), pseudonymize=("client_id",)),
}

names = st.sampled_from(
    [
        "a",
        "",
        "é",
        "n" * 200,
        "org.apache.kafka.consumer.node.request.latency.avg",
        "org.apache.kafka.consumer.connection.creation.total",
        "org.apache.kafka.consumer.connection.creation.rate",
        "org.apache.kafka.consumer.select.rate",
        "org.apache.kafka.consumer.fetch.manager.preferred.read.replica",
    ]
)
keys = st.sampled_from(
    [
        *("node_id", "node.id", "node_role", "member_id", "group_member_id"),
        *("topic", "secret", "known_bad", "thread-id", "", "s" * 130),
    ]
)
texts_of_nodes = st.sampled_from(
    [
        *(
            "node-1",
            "node--1",
            "node-+1",
            "node-2147483646",
            "1",
            "-2",
            "+3",
            "node-",
            "node-x",
            "00012",
            "bootstrap",
            "",
        ),
        *(
            "99999999999",
            "2147483648",
            "node-1073741823",
            "node-1073741824",
            "\u0661",
            "node_id",
            "!\x19\x21",
        ),
    ]
)
values = st.one_of(
    texts_of_nodes.map(lambda text: AnyValue(string_value=text)),
    st.sampled_from([0, 1, -1, 2**31 - 2, 2**31, -(2**63)]).map(lambda number: AnyValue(int_value=number)),
    st.sampled_from([AnyValue(), AnyValue(double_value=1.0), AnyValue(bool_value=True)]),
)
attributes = st.lists(st.builds(KeyValue, key=keys, value=values), max_size=3)
times = st.sampled_from([0, 1, 1_795_255_024_788_074_000, 0x19 << 56, 0x21_00_19 << 40])
exemplars = st.lists(st.builds(Exemplar, filtered_attributes=attributes), max_size=1)
numbers = st.one_of(
    *(
        st.builds(
            NumberDataPoint,
            start_time_unix_nano=times,
            time_unix_nano=times,
            attributes=attributes,
            exemplars=extra,
            **value,
        )
        for value in ({"as_double": st.sampled_from([0.0, 1.5])}, {"as_int": st.integers(-1, 1)}, {})
        for extra in (st.just([]), exemplars)
    )
)


def lists(of: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.one_of(st.tuples(of).map(list), st.lists(of, max_size=3))


texts = st.sampled_from(["", "", "", "mine"])
data = st.one_of(
    st.fixed_dictionaries({"gauge": st.builds(Gauge, data_points=lists(numbers))}),
    st.fixed_dictionaries({"gauge": st.builds(Gauge, data_points=lists(numbers))}),
    st.fixed_dictionaries({"sum": st.builds(Sum, data_points=lists(numbers), is_monotonic=st.booleans())}),
    st.fixed_dictionaries(
        {
            "histogram": st.builds(
                Histogram,
                data_points=lists(
                    st.builds(
                        HistogramDataPoint, time_unix_nano=times, attributes=attributes, exemplars=exemplars
                    )
                ),
            )
        }
    ),
    st.fixed_dictionaries(
        {
            "exponential_histogram": st.builds(
                ExponentialHistogram,
                data_points=lists(
                    st.builds(ExponentialHistogramDataPoint, attributes=attributes, exemplars=exemplars)
                ),
            )
        }
    ),
    st.fixed_dictionaries(
        {"summary": st.builds(Summary, data_points=lists(st.builds(SummaryDataPoint, attributes=attributes)))}
    ),
    st.just({}),
)
metrics = st.builds(
    lambda name, unit, description, kind: Metric(name=name, unit=unit, description=description, **kind),
    names,
    texts,
    texts,
    data,
)
scopes = st.one_of(
    st.none(),
    st.builds(
        InstrumentationScope,
        name=st.sampled_from(["", "kgo", "my#id#producer-1"]),
        attributes=attributes,
    ),
)
resources = st.one_of(st.none(), st.builds(Resource, attributes=attributes))


@st.composite
def like_java(draw: st.DrawFn) -> MetricsData:
    """A push with one ResourceMetrics for each metric, all with the same Resource."""
    resource = draw(resources)
    return MetricsData(
        resource_metrics=[
            ResourceMetrics(resource=resource, scope_metrics=[ScopeMetrics(metrics=[metric])])
            for metric in draw(st.lists(metrics, min_size=1, max_size=6))
        ]
    )


pushes = st.one_of(
    like_java(),
    st.builds(
        MetricsData,
        resource_metrics=st.lists(
            st.builds(
                ResourceMetrics,
                resource=resources,
                scope_metrics=st.lists(
                    st.builds(ScopeMetrics, scope=scopes, metrics=st.lists(metrics, max_size=3)), max_size=2
                ),
            ),
            max_size=3,
        ),
    ),
)


def compare(push: MetricsData, data: bytes, name: str, max_series: int | None) -> None:
    """Label twice, so that the second time uses the caches."""
    steps, normalization, privacy, bad = CONFIGURATIONS[name]
    oracle = Oracle(normalization=normalization, privacy=privacy, bad_metrics=bad, max_series=max_series)
    expected, _, _, resources = taken_apart(oracle.apply(push))
    counts = oracle.counts
    for _ in range(2):
        labelled = label_metrics(
            data, LABELS, max_entries=MAX_ENTRIES, steps=steps, bound=SeriesBound(max_series=max_series)
        )
        assert counted(labelled) == counts
        if not expected:
            assert labelled.data == b""
            continue
        found, origins = received(labelled.data)
        assert found == expected
        assert set(origins) == resources
        assert len(origins) == len(set(origins))


def counted(labelled: LabelledMetrics) -> dict[str, int]:
    assert not labelled.steps.unnormalized
    return {
        "bad": labelled.steps.bad_points,
        "marked": labelled.steps.marked_points,
        "private": labelled.steps.private_points,
        "dropped": labelled.steps.dropped_attributes,
        "hashed": labelled.steps.hashed_attributes,
        "series": labelled.series,
        "over": labelled.overflowed,
    }


@st.composite
def written(draw: st.DrawFn) -> tuple[MetricsData, bytes]:
    """A push, and bytes that parse as it."""
    push = draw(pushes)
    odd = draw(st.booleans())
    return push, OddWriter(draw, unknown=False).write(push) if odd else push.SerializeToString()


@given(written(), st.sampled_from(sorted(CONFIGURATIONS)), st.sampled_from([None, 0, 1, 3]))
def test_the_steps_equal_the_oracle(
    case: tuple[MetricsData, bytes], name: str, max_series: int | None
) -> None:
    push, data = case
    if any(scope.metrics for part in push.resource_metrics for scope in part.scope_metrics):
        compare(push, data, name, max_series)


@pytest.mark.parametrize("max_series", [None, 7])
@pytest.mark.parametrize("name", sorted(CONFIGURATIONS))
@pytest.mark.parametrize("captured", ALL_PAYLOADS)
def test_the_steps_equal_the_oracle_on_captured_pushes(
    captured: str, name: str, max_series: int | None
) -> None:
    # The scrubber has its own tests, so Java's NaN metrics are left out.
    push = MetricsData.FromString(payload(captured))
    Scrubber().scrub(push)
    compare(push, push.SerializeToString(), name, max_series)
