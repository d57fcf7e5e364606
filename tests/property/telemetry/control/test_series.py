"""Series budgets for any sequence of pushes: sums, bounds and fair shares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from receiver.settings.metric_processing import SeriesSettings
from receiver.telemetry.control.series import SeriesBudgets, SeriesUse
from receiver.telemetry.identity import ANONYMOUS
from receiver.wire.uuid import Uuid

PRINCIPALS = ("User:alice", "User:bob", ANONYMOUS)
IDS = tuple(Uuid(number.to_bytes(16, "big")) for number in range(6))

_BUDGETS = st.builds(
    SeriesSettings,
    max_per_client=st.none() | st.integers(1, 40),
    max_per_principal=st.none() | st.integers(1, 80),
    max_total=st.none() | st.integers(1, 120),
)
_PUSHES = st.tuples(
    st.sampled_from(IDS), st.sampled_from(PRINCIPALS), st.sampled_from("ab"), st.integers(0, 60)
)
_STEPS = st.lists(_PUSHES | st.sampled_from(IDS), max_size=60)


@given(settings=_BUDGETS, steps=_STEPS)
def test_sums_equal_the_instances_and_stay_within_budgets(
    settings: SeriesSettings, steps: list[tuple[Uuid, str, str, int] | Uuid]
) -> None:
    budgets = SeriesBudgets(settings)
    known: dict[Uuid, tuple[str, str, int, int]] = {}
    overflowed_ever = 0
    for now, step in enumerate(steps):
        if not isinstance(step, tuple):
            budgets.forget(step)
            known.pop(step, None)
        else:
            instance, principal, client_id, points = step
            allowed = budgets.allowed(instance, principal, "10.0.0.1")
            kept = points if allowed is None else min(points, allowed)
            assert kept >= 0
            before = known.get(instance)
            if before is not None and before[0] == principal:
                assert kept >= min(points, before[2]), "it keeps what it had"
            budgets.record_push(
                instance,
                principal=principal,
                client_id=client_id,
                block="10.0.0.1",
                series=kept,
                overflowed=points - kept,
                now=float(now),
            )
            known[instance] = (principal, client_id, kept, points - kept)
            overflowed_ever += points - kept
        _check(budgets, known, settings)
    assert budgets.overflowed_points == overflowed_ever


def _check(
    budgets: SeriesBudgets, known: dict[Uuid, tuple[str, str, int, int]], settings: SeriesSettings
) -> None:
    report = budgets.report(100, 1000.0)
    assert {use.name: (use.series, use.overflowed) for use in report.clients} == {
        instance: facts[2:] for instance, facts in known.items()
    }
    for uses, place in ((report.principals, 0), (report.client_ids, 1)):
        assert {use.name: (use.instances, use.series, use.overflowed) for use in uses} == {
            name: _sums(facts for facts in known.values() if facts[place] == name)
            for name in {facts[place] for facts in known.values()}
        }
    total = report.total
    assert (total.instances, total.series, total.overflowed) == _sums(known.values())
    assert budgets.series == total.series
    all_uses: tuple[SeriesUse[Any], ...] = (total, *report.clients, *report.client_ids, *report.principals)
    for use in all_uses:
        assert (use.over_for_s is None) == (use.overflowed == 0)
    if settings.max_total is not None:
        assert total.series <= settings.max_total
    if settings.max_per_client is not None:
        assert all(client.series <= settings.max_per_client for client in report.clients)
    for principal in report.principals:
        if settings.max_per_principal is not None and principal.name != ANONYMOUS:
            assert principal.series <= settings.max_per_principal


def _sums(facts: Iterable[tuple[str, str, int, int]]) -> tuple[int, int, int]:
    series = [(fact[2], fact[3]) for fact in facts]
    return len(series), sum(kept for kept, _ in series), sum(over for _, over in series)


_SITES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
_HOSTILE = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(_SITES[1:]), st.integers(0, 200)) | st.integers(0, 30),
    max_size=80,
)


@given(before=_HOSTILE, after=_HOSTILE, total=st.integers(30, 120))
def test_a_site_within_its_share_is_never_refused(
    before: list[tuple[int, str, int] | int], after: list[tuple[int, str, int] | int], total: int
) -> None:
    budgets = SeriesBudgets(SeriesSettings(max_per_client=None, max_per_principal=None, max_total=total))
    innocent = Uuid((1000).to_bytes(16, "big"))
    share = total // len(_SITES)

    def push(instance: Uuid, block: str, points: int) -> int:
        allowed = budgets.allowed(instance, ANONYMOUS, block)
        assert allowed is not None
        budgets.record_push(
            instance,
            principal=ANONYMOUS,
            client_id="c",
            block=block,
            series=min(points, allowed),
            overflowed=max(0, points - allowed),
            now=0.0,
        )
        assert budgets.series <= total
        return min(points, allowed)

    for steps in (before, after):
        for step in steps:
            if isinstance(step, tuple):
                number, block, points = step
                push(Uuid(number.to_bytes(16, "big")), block, points)
            else:
                budgets.forget(Uuid(step.to_bytes(16, "big")))
            assert budgets.series <= total
        assert push(innocent, _SITES[0], share) == share
