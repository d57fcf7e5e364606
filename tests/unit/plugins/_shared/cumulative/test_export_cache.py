"""A retry gets the same results, also if the batch was split or grew."""

from __future__ import annotations

from plugins._shared.cumulative import ExportCache
from receiver.plugin import Push
from tests.unit.plugins._shared.cumulative.support import push

PUSHES = [push(at=n, instance=str(n)) for n in range(6)]


class Making:
    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, one: Push) -> str:
        self.made.append(one.payload.client_instance_id)
        return one.payload.client_instance_id


def test_a_retry_and_its_halves_compute_nothing_again() -> None:
    cache, making = ExportCache[str](), Making()
    for part in (PUSHES[:4], PUSHES[:4], PUSHES[:2], PUSHES[2:4], PUSHES[2:3], PUSHES[3:4]):
        assert cache.results(part, making) == [item.payload.client_instance_id for item in part]
    assert making.made == ["0", "1", "2", "3"]


def test_a_batch_that_grew_keeps_its_results() -> None:
    cache, making = ExportCache[str](), Making()
    cache.results(PUSHES[:2], making)
    assert cache.results(PUSHES[:4], making) == ["0", "1", "2", "3"]
    assert making.made == ["0", "1", "2", "3"]


def test_delivered_and_given_up_pushes_are_forgotten() -> None:
    cache, making = ExportCache[str](), Making()
    cache.results(PUSHES[:2], making)
    cache.discard(PUSHES[:1])
    assert cache.results(PUSHES[1:2], making) == ["1"]
    cache.results(PUSHES[2:3], making)
    cache.results(PUSHES[1:2], making)
    assert making.made == ["0", "1", "2", "1"]


def test_results_before_a_failure_stay() -> None:
    cache, making = ExportCache[str](), Making()

    def failing(one: Push) -> str:
        if one is PUSHES[1]:
            raise ValueError("no")
        return making(one)

    for _ in range(2):
        try:
            cache.results(PUSHES[:2], failing)
        except ValueError:
            continue
    assert making.made == ["0"]
