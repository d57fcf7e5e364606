"""The grammar, the collisions and the ledger of the pipeline's fuzzing are correct."""

from __future__ import annotations

from random import Random

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.telemetry.errors import PushError
from receiver.telemetry.otlp import label_metrics
from tests.fuzz.pipeline import collisions
from tests.fuzz.pipeline.collisions import colliding, xxh64
from tests.fuzz.pipeline.flood import identity_of
from tests.fuzz.pipeline.grammar import FEATURES, Grammar, bomb
from tests.fuzz.pipeline.identities import HOSTILES, IDENTITIES, INNOCENTS
from tests.fuzz.pipeline.innocents import CREATED, LATENCY, ORDERS, TOPIC, InnocentPushes

_HOSTILE = IDENTITIES[INNOCENTS]
_TIME_NS = 1_795_255_100_000_000_000


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_xxh64_is_xxh64(data: bytes, hashed: int) -> None:
    assert xxh64(data, 0) == hashed


@pytest.mark.parametrize("number", [INNOCENTS, INNOCENTS + 3, INNOCENTS + HOSTILES - 1])
def test_colliding_topics_collide(number: int) -> None:
    attacker, victim = IDENTITIES[number], IDENTITIES[0]
    metric, topic = colliding(attacker, victim)
    assert metric == collisions.METRIC
    assert topic.decode() != TOPIC
    of_attacker, of_victim = (collisions.point_seed(item) for item in (attacker, victim))
    assert xxh64(topic, of_attacker) == xxh64(collisions.TOPIC, of_victim)


def test_colliding_instances_collide() -> None:
    innocent, hostile = collisions.INSTANCES
    assert innocent != hostile
    assert xxh64(innocent.encode(), 42) == xxh64(hostile.encode(), 42)
    assert [identity_of(number).innocent for number in range(2)] == [True, False]


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_gets_past_the_core(feature: str) -> None:
    grammar = Grammar(Random(1), (feature,))
    skeletons = [grammar.skeleton(_HOSTILE) for _ in range(40)]
    assert all(skeleton.features == (feature,) and skeleton.times for skeleton in skeletons)
    taken = [_is_taken(skeleton.push(_TIME_NS, 1.5)) for skeleton in skeletons]
    assert sum(taken) >= 4


def _is_taken(data: bytes) -> bool:
    try:
        return bool(label_metrics(data, b"", max_entries=100_000).data)
    except PushError:
        return False


def test_a_seed_makes_the_same_pushes() -> None:
    one, other = (
        [grammar.skeleton(_HOSTILE).data for _ in range(100)]
        for grammar in (Grammar(Random("seed")), Grammar(Random("seed")))
    )
    assert one == other


def test_times_and_values_make_pushes_differ() -> None:
    skeleton = Grammar(Random(1), ("labels",)).skeleton(_HOSTILE)
    assert skeleton.push(1, 1.5) != skeleton.push(2, 1.5)
    assert len(skeleton.push(1, 1.5)) == len(skeleton.data)


def test_a_bomb_has_absurd_counts() -> None:
    push = MetricsData.FromString(bomb().push(_TIME_NS, 1.5))
    (metric,) = push.resource_metrics[0].scope_metrics[0].metrics
    assert {point.count for point in metric.histogram.data_points} == {(1 << 64) - 1}
    assert len(metric.histogram.data_points) > 8_000


def test_the_ledger_has_the_values_of_innocent_pushes() -> None:
    pushes = InnocentPushes(Random(1))
    sums = dict.fromkeys((CREATED, ORDERS, LATENCY), 0.0)
    values = 0
    for _ in range(50):
        push = MetricsData.FromString(pushes.push("innocent-07", _TIME_NS))
        metrics = {metric.name: metric for metric in push.resource_metrics[0].scope_metrics[0].metrics}
        for name in (CREATED, ORDERS):
            (point,) = metrics[name].sum.data_points
            assert point.time_unix_nano == _TIME_NS
            sums[name] += point.as_double
        (histogram,) = metrics[LATENCY].histogram.data_points
        assert sum(histogram.bucket_counts) == histogram.count
        sums[LATENCY] += histogram.sum
        values += histogram.count
    ledger = pushes.ledger
    assert ledger.pushes == {"innocent-07": 50}
    assert {key[1]: total for key, total in ledger.sums.items()} == sums
    assert sum(ledger.counts.values()) == values
