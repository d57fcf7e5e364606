"""Series budgets and the report of the largest users."""

from __future__ import annotations

import pytest

from receiver.principal.sasl import UNKNOWN_PRINCIPAL
from receiver.settings.metric_processing import SeriesSettings
from receiver.telemetry.control.series import SeriesBudgets
from receiver.telemetry.identity import ANONYMOUS
from receiver.wire.uuid import Uuid

ALICE, BOB = "User:alice", "User:bob"


def instance(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def budgets(
    per_client: int | None = None, per_principal: int | None = None, total: int | None = None
) -> SeriesBudgets:
    return SeriesBudgets(settings(per_client, per_principal, total))


def settings(per_client: int | None, per_principal: int | None, total: int | None) -> SeriesSettings:
    return SeriesSettings(max_per_client=per_client, max_per_principal=per_principal, max_total=total)


def push(
    series: SeriesBudgets,
    number: int,
    points: int,
    principal: str = ALICE,
    client_id: str = "orders",
    now: float = 0.0,
    block: str = "10.0.0.1",
) -> int:
    """Push some points, and return how many fit."""
    allowed = series.allowed(instance(number), principal, block)
    kept = points if allowed is None else min(points, allowed)
    series.record_push(
        instance(number),
        principal=principal,
        client_id=client_id,
        block=block,
        series=kept,
        overflowed=points - kept,
        now=now,
    )
    return kept


def test_without_budgets_anything_is_allowed() -> None:
    series = budgets()
    assert series.allowed(instance(1), ALICE, "10.0.0.1") is None
    assert push(series, 1, 1_000_000) == 1_000_000


def test_each_client_has_a_budget() -> None:
    series = budgets(per_client=10)
    assert push(series, 1, 15) == 10
    assert push(series, 2, 10) == 10
    assert push(series, 1, 15) == 10
    assert (series.series, series.overflowed_points) == (20, 10)


def test_a_new_instance_gets_the_series_that_are_free() -> None:
    series = budgets(total=25)
    assert push(series, 1, 20) == 20
    assert push(series, 2, 10, BOB) == 5
    assert push(series, 3, 10) == 0
    assert push(series, 1, 25) == 20
    # Series that one instance frees, the next may use.
    assert push(series, 1, 12) == 12
    assert push(series, 3, 10) == 8
    assert series.series == 25


def test_series_of_a_forgotten_instance_are_free() -> None:
    series = budgets(total=10)
    push(series, 1, 10)
    series.forget(instance(1))
    series.forget(instance(1))
    assert series.series == 0
    assert push(series, 2, 10) == 10


def test_a_principal_has_a_budget_over_all_its_instances() -> None:
    series = budgets(per_principal=15)
    assert push(series, 1, 10, ALICE) == 10
    assert push(series, 2, 10, ALICE) == 5
    assert push(series, 3, 10, BOB) == 10
    assert push(series, 1, 12, ALICE) == 10


@pytest.mark.parametrize("shared", [ANONYMOUS, UNKNOWN_PRINCIPAL])
def test_shared_principals_have_no_budget(shared: str) -> None:
    series = budgets(per_principal=5)
    assert series.allowed(instance(1), shared, "10.0.0.1") is None
    assert push(series, 1, 10, shared) == 10
    assert push(series, 2, 10, shared) == 10


def test_an_instance_counts_for_its_present_principal() -> None:
    series = budgets(per_principal=10)
    push(series, 1, 8, ALICE)
    push(series, 2, 8, BOB)
    assert push(series, 1, 8, BOB) == 2
    assert push(series, 3, 10, ALICE) == 10
    assert series.series == 20


def test_a_smaller_budget_applies_as_instances_push() -> None:
    series = budgets(total=100)
    for number in range(10):
        push(series, number, 10)
    series.replace_settings(settings(None, None, 55))
    kept = [push(series, number, 10) for number in range(10)]
    assert kept == [0, 0, 0, 0, 5, 10, 10, 10, 10, 10]
    assert series.series == 55


def test_the_report_names_the_largest_users() -> None:
    series = budgets(per_client=10)
    push(series, 1, 9, ALICE, "steady", now=1.0)
    push(series, 2, 12, BOB, "orders", now=2.0)
    push(series, 3, 30, BOB, "orders", now=4.0)
    push(series, 2, 15, BOB, "orders", now=8.0)
    report = series.report(2, now=10.0)
    assert [(use.name, use.series, use.overflowed, use.over_for_s) for use in report.clients] == [
        (instance(3), 10, 20, 6.0),
        (instance(2), 10, 5, 8.0),
    ]
    assert [(use.name, use.instances, use.overflowed, use.over_for_s) for use in report.client_ids] == [
        ("orders", 2, 25, 8.0),
        ("steady", 1, 0, None),
    ]
    assert [(use.name, use.series) for use in report.principals] == [(BOB, 20), (ALICE, 9)]
    assert (report.total.instances, report.total.series, report.total.overflowed) == (3, 29, 25)
    assert report.budgets.max_per_client == 10


def test_an_instance_within_budget_again_is_not_over() -> None:
    series = budgets(per_client=10)
    push(series, 1, 12, now=1.0)
    push(series, 1, 10, now=2.0)
    assert series.report(1, now=3.0).clients[0].over_for_s is None
    push(series, 1, 12, now=4.0)
    assert series.report(1, now=5.0).clients[0].over_for_s == 1.0
    series.forget(instance(1))
    report = series.report(1, now=6.0)
    assert (report.clients, report.client_ids, report.principals) == ((), (), ())
    assert report.total.over_for_s is None
    # Counted since the start, even for forgotten instances.
    assert series.overflowed_points == 4


def test_one_address_cannot_use_up_the_share_of_others() -> None:
    series = budgets(per_client=100, total=1_000)
    for number in range(100):
        push(series, number, 100, ANONYMOUS, block="10.6.6.6")
    assert series.series == 1_000
    # Two blocks: the other one gets half at once, though the hostile one never pushes again.
    for number in range(1_000, 1_005):
        assert push(series, number, 100, ANONYMOUS, block="10.0.0.2") == 100
    assert push(series, 1_005, 100, ANONYMOUS, block="10.0.0.2") == 0
    assert series.series == 1_000
    # A third address block: each gets a third.
    for number in range(2_000, 2_003):
        assert push(series, number, 100, ANONYMOUS, block="10.0.0.3") == 100
    assert push(series, 2_003, 100, ANONYMOUS, block="10.0.0.3") == 33
    # An address block that ceded series gets no more than its share, whatever it pushes.
    kept = sum(push(series, number, 100, ANONYMOUS, block="10.6.6.6") for number in range(100))
    assert kept <= 334
    assert series.series <= 1_000


def test_one_push_takes_series_from_a_bounded_number_of_sites() -> None:
    series = budgets(total=10_000)
    for number in range(100):
        push(series, number, 100, block=f"10.0.1.{number}")
    assert push(series, 1_000, 10_000, block="10.0.0.2") == 10_000 // 101
    # Each address block had one series more than its share, and 64 of them ceded it.
    assert series.series == 10_000 + 99 - 64
    assert push(series, 1_000, 10_000, block="10.0.0.2") == 99
    assert series.series == 10_000


def test_a_forgotten_instance_frees_the_series_of_its_principal_and_its_site() -> None:
    series = budgets(per_principal=150, total=100)
    push(series, 1, 20)
    push(series, 2, 30)
    series.forget(instance(1))
    assert series.report(10, 0.0).principals[0].series == 30
    assert series.report(10, 0.0).total.series == 30
    series.forget(instance(2))
    # An address block without instances has no share: two address blocks divide the total.
    assert push(series, 3, 100, block="10.0.0.2") == 100
    assert push(series, 4, 100, BOB, block="10.0.0.3") == 50


def test_all_sites_over_their_share_cede_series_to_a_new_site() -> None:
    series = budgets(total=100)
    assert push(series, 1, 100, block="10.0.0.1") == 100
    assert push(series, 2, 100, block="10.0.0.2") == 50
    assert push(series, 3, 100, block="10.0.0.3") == 33
    assert series.series == 100
    left = [series.allowed(instance(n), ALICE, f"10.0.0.{n}") for n in (1, 2, 3)]
    assert sorted(left, key=lambda allowed: allowed or 0) == [33, 33, 34]
