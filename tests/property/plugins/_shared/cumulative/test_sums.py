"""Pushes in any order: no delta counts twice, no counter shrinks without a new start."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from plugins._shared.cumulative import Cumulative
from receiver.plugin import Push
from tests.unit.plugins._shared.cumulative.support import counter, number, points, push

SERIES = ("a", "b")

deltas = st.one_of(
    st.integers(0, (1 << 63) - 1), st.floats(0, allow_nan=False, allow_infinity=False, width=32)
)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Push, dict[str, float]]]:
    """Pushes in their order, with the deltas of each."""
    made = []
    # No more than an instance remembers, to recognise repeats.
    for n in range(draw(st.integers(1, 8))):
        pushed = draw(st.dictionaries(st.sampled_from(SERIES), deltas, min_size=1))
        metrics = [counter(name, number(value, since=n, at=n + 1)) for name, value in pushed.items()]
        made.append((push(*metrics, at=n + 1, push_id=str(n)), pushed))
    return made


def values(data: bytes) -> dict[str, tuple[float, int]]:
    return {
        metric.name: (
            point.as_int if point.WhichOneof("value") == "as_int" else point.as_double,
            point.start_time_unix_nano,
        )
        for metric, point in points(data)
    }


@given(histories())
def test_a_total_is_the_exact_sum_since_its_start(history: list[tuple[Push, dict[str, float]]]) -> None:
    state: Cumulative = Cumulative(max_series=10)
    since: dict[str, tuple[int, list[float]]] = {}
    for item, pushed in history:
        got = values(state.accumulate(item).data)
        assert got.keys() == pushed.keys()
        for name, (value, start) in got.items():
            if since.get(name, (None,))[0] != start:
                since[name] = (start, [])
            added = since[name][1]
            added.append(pushed[name])
            exact = sum(added) if all(isinstance(x, int) for x in added) else math.fsum(added)
            assert math.isclose(value, exact, rel_tol=1e-15), (value, exact)


@given(histories(), st.data())
def test_repeats_and_late_pushes_count_at_most_once(
    history: list[tuple[Push, dict[str, float]]], data: st.DataObject
) -> None:
    state: Cumulative = Cumulative(max_series=10)
    order = data.draw(st.lists(st.sampled_from(history), max_size=20))
    pushed: dict[str, float] = {}
    for name in SERIES:
        pushed[name] = math.fsum(values_.get(name, 0) for _, values_ in history)
    last: dict[str, tuple[float, int]] = {}
    for item, _ in order:
        for name, (value, start) in values(state.accumulate(item).data).items():
            before, began = last.get(name, (0.0, start))
            assert value >= before or start != began
            assert value <= pushed[name] * (1 + 1e-15)
            last[name] = (value, start)
