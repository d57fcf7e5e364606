"""Shares rounds between processes; each has a broker and a gateway of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, Final, cast

from tests.fuzz.differential.report import finding
from tests.fuzz.differential.rounds import Outcome, play_rounds
from tests.fuzz.differential.world import world

#: Rounds with the same broker, which has grown then.
_SLICE: Final = 10_000
#: Rounds after which a process tells of its figures.
_TELL_AFTER: Final = 50


def run(seed: str, numbers: range, processes: int) -> Iterator[str | Outcome]:
    """Play rounds, and yield each finding as a text, and figures now and then.

    Args:
        seed: Where everything random comes from.
        numbers: The rounds' numbers.
        processes: How many processes share them.

    Raises:
        RuntimeError: A process has ended before its rounds.
    """
    slices = [numbers[start : start + _SLICE] for start in range(0, len(numbers), _SLICE)]
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection[Any, Any], Any] = {}
    for number in range(min(processes, len(slices))):
        results, out = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(seed, slices[number::processes], out))
        worker.start()
        out.close()
        workers[results] = worker
    try:
        while workers:
            for ready in wait(list(workers)):
                results = cast("Connection[Any, Any]", ready)
                try:
                    event: str | Outcome = results.recv()
                except EOFError:
                    worker = workers.pop(results)
                    worker.join()
                    if worker.exitcode:
                        raise RuntimeError(f"a process ended with status {worker.exitcode}") from None
                else:
                    yield event
    finally:
        for worker in workers.values():
            worker.terminate()
            worker.join()


def _work(seed: str, slices: list[range], out: Connection[Any, Any]) -> None:
    for numbers in slices:
        try:
            asyncio.run(_play(seed, numbers, out))
        except ConnectionError as error:  # the next slice has another broker
            out.send(f"FOUND within rounds {numbers.start} to {numbers.stop - 1} of seed {seed}: {error}")
            out.send(Outcome(findings=1))


async def _play(seed: str, numbers: range, out: Connection[Any, Any]) -> None:
    with world(len(numbers)) as place:
        outcome = Outcome()
        async for played in play_rounds(place, seed, numbers):
            outcome.add(played)
            for path, problem in played.problems.items():
                out.send(finding(played.script, path, problem))
            if outcome.rounds == _TELL_AFTER:
                out.send(outcome)
                outcome = Outcome()
        for text in place.problems():
            outcome.findings += 1
            out.send(f"FOUND after rounds {numbers.start} to {numbers.stop - 1} of seed {seed}: {text}")
        out.send(outcome)
