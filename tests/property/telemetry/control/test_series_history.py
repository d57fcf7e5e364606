"""Limits on new series for any sequence of pushes: what was there stays, little is added."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import ScopeMetrics

from receiver.settings.limits import LimitsSettings, PeerLimitsSettings, PrincipalLimitsSettings
from receiver.settings.metric_processing import SeriesSettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.control.series_history import SeriesHistory
from receiver.telemetry.steps.series_keys import PushedSeries
from receiver.wire.uuid import Uuid
from tests.unit.telemetry.otlp_parts import gauge
from tests.unit.telemetry.parts import connection

IDS = tuple(Uuid(number.to_bytes(16, "big")) for number in range(4))
SOURCES = ("10.0.0.1", "10.0.0.2", "2001:db8::1")
HOUR = 3600.0

_ALLOWED = st.none() | st.integers(1, 20)
_PUSHES = st.tuples(
    st.sampled_from(IDS),
    st.sampled_from(SOURCES),
    st.lists(st.integers(0, 40), max_size=12),
    st.sampled_from((0.0, 1.0, 600.0, HOUR)),
)


def pushed(names: list[int]) -> PushedSeries:
    metrics = [gauge(f"m{name}", 1.0) for name in names]
    together = ScopeMetrics(metrics=metrics).SerializeToString()
    return PushedSeries(together, [(b"", b"", len(metrics))], lambda _name: False)


@given(own=_ALLOWED, source=_ALLOWED, pushes=st.lists(_PUSHES, max_size=40))
def test_an_instance_keeps_its_series_and_adds_no_more_than_the_limits(
    own: int | None, source: int | None, pushes: list[tuple[Uuid, str, list[int], float]]
) -> None:
    history, limits = limited(own, source)
    now = 0.0
    had: dict[Uuid, set[int]] = defaultdict(set)
    added: dict[object, int] = defaultdict(int)
    for instance, address, names, passed in pushes:
        now += passed
        push = pushed(names)
        identity = replace(connection(), source_address=address)
        refused, exceeded = history.refused(identity, instance, push, now)
        keys = {key for metric in push.by_metric for key in metric}
        assert refused <= keys - had[instance], "it keeps what it had"
        assert (exceeded is not None) == bool(refused)
        assert exceeded is None or 0 < exceeded.retry_after_s <= HOUR
        new = keys - refused - had[instance]
        had[instance] |= new
        added[instance] += len(new)
        added[address] += len(new)
        for peer, allowed in ((instance, own), (address, source)):
            assert allowed is None or added[peer] <= allowed * (1 + now / HOUR) + 1e-6
        if refused and own is None:
            assert source is not None
    assert history.remembered == sum(map(len, had.values()))
    assert limits.peers["source_address"] <= len(SOURCES)


def limited(own: int | None, source: int | None) -> tuple[SeriesHistory, Limits]:
    limits = Limits(
        LimitsSettings(
            source_address=PeerLimitsSettings(new_series_per_hour=source),
            principal=PrincipalLimitsSettings(new_series_per_hour=None),
        )
    )
    return SeriesHistory(SeriesSettings(new_per_client_per_hour=own), limits, max_instances=8), limits


@given(names=st.lists(st.integers(0, 30), max_size=30), order=st.randoms(use_true_random=False))
def test_the_order_and_the_values_of_a_push_make_no_new_series(names: list[int], order: object) -> None:
    history, _ = limited(len(set(names)) or 1, None)
    identity = connection()
    assert history.refused(identity, IDS[0], pushed(names), 0.0) == (frozenset(), None)
    shuffled = [*names]
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # random.Random
    assert history.refused(identity, IDS[0], pushed(shuffled), 0.0) == (frozenset(), None)
