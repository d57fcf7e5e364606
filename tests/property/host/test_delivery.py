"""Every push ends once, and pushes arrive in order, whatever happens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.host.delivery.statistics import DropReason, PluginStatistics
from receiver.host.host import PluginHost
from receiver.plugin import BatchRefusedError, PermanentError, Push, RetryableError, UnclearError
from tests.exploration import examples
from tests.unit.host.support import Batching, hosted, numbers, push, total, wait_for

OUTCOMES: dict[str, Callable[[], BaseException | None]] = {
    "took": lambda: None,
    "away": lambda: RetryableError("away"),
    "busy": lambda: RetryableError("busy", retry_after_s=0.002),
    "refused": lambda: PermanentError("refused"),
    "too large": lambda: BatchRefusedError("too large"),
    "unclear": lambda: UnclearError("HTTP 500"),
    "crashed": lambda: ValueError("a bug"),
    "out of memory": MemoryError,
}


def looked_at(host: PluginHost) -> PluginStatistics:
    (statistics,) = host.statistics()
    assert total(statistics) == statistics.offered_pushes + statistics.recovered_pushes
    return statistics


@settings(max_examples=examples(25), deadline=None)
@given(
    script=st.lists(st.sampled_from(sorted(OUTCOMES)), max_size=30),
    delivery=st.sampled_from(["memory", "spool_when_behind", "spool_always"]),
    pushes=st.integers(1, 40),
    failures=st.integers(1, 4),
)
def test_every_push_comes_to_one_end(script: list[str], delivery: str, pushes: int, failures: int) -> None:
    outcomes = iter(script)
    took: list[int] = []

    def export(batch: Sequence[Push]) -> None:
        if error := OUTCOMES[next(outcomes, "took")]():
            raise error
        took.extend(numbers(batch))

    with tempfile.TemporaryDirectory() as folder:
        spool = {"path": str(Path(folder, "spool")), "after_ms": 2}
        host = PluginHost(
            [hosted(Batching(export), delivery=delivery, spool=spool, breaker={"failures": failures})]
        )
        host.start()
        for number in range(pushes):
            host.offer(push(number))
            looked_at(host)
        wait_for(lambda: looked_at(host).exported_pushes + sum(looked_at(host).dropped.values()) == pushes)
        assert host.stop(10)
        statistics = looked_at(host)
    assert sorted(took) == sorted(set(took)), "each once; a suspect is overtaken"
    assert statistics.exported_pushes == len(took)
    assert sum(statistics.dropped.values()) == pushes - len(took)
    assert {reason for reason, count in statistics.dropped.items() if count} <= {
        DropReason.PERMANENT,
        DropReason.CRASH,
    }
    assert (
        statistics.spool_problem,
        statistics.spool_pushes,
        statistics.in_flight_pushes,
        statistics.lag_seconds,
    ) == (None, 0, 0, 0.0)
