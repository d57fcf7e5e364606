"""Plays rounds on all sides, several at once, and compares them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.fuzz.differential import schemas
from tests.fuzz.differential.comparison import Comparison, Problem
from tests.fuzz.differential.conversation import Transcript, play
from tests.fuzz.differential.script import Script, Writer
from tests.fuzz.differential.world import ATTEMPTS, World

#: Rounds in flight.
AT_ONCE: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of one round.

    Attributes:
        script: The round's script.
        problems: What differs, by the gateway's listener.
        answers: The broker's answers.
        asked_again: How often the broker was asked again, because its answers vary.
        requests: The requests on all sides, by API key and version.
    """

    script: Script
    problems: dict[str, Problem]
    answers: int
    asked_again: int
    requests: Counter[tuple[int | None, int]]


@dataclass(slots=True)
class Outcome:
    """Figures of many rounds."""

    rounds: int = 0
    answers: int = 0
    asked_again: int = 0
    findings: int = 0
    requests: Counter[tuple[int | None, int]] = field(default_factory=Counter)

    def add(self, played: Played) -> None:
        """Count a round."""
        self.rounds += 1
        self.answers += played.answers
        self.asked_again += played.asked_again
        self.findings += bool(played.problems)
        self.requests += played.requests

    def merge(self, other: Outcome) -> None:
        """Count the rounds of another process."""
        self.rounds += other.rounds
        self.answers += other.answers
        self.asked_again += other.asked_again
        self.findings += other.findings
        self.requests += other.requests


async def play_rounds(world: World, seed: str, numbers: Iterable[int]) -> AsyncIterator[Played]:
    """Play rounds, and yield what came of each."""
    apis = schemas.load()
    writer = Writer(apis, world.offered, seed)
    comparison = Comparison(apis, world.gateways)
    waiting = iter(numbers)
    running: set[asyncio.Task[Played]] = set()
    try:
        while True:
            for number in waiting:
                script = writer.script(number)
                running.add(asyncio.create_task(_play_round(world, comparison, script)))
                if len(running) >= AT_ONCE:
                    break
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                world.check_running()
                yield task.result()
    finally:
        for task in running:
            task.cancel()


async def _play_round(world: World, comparison: Comparison, script: Script) -> Played:
    direct, kept, rewritten = await asyncio.gather(
        play(script, world.sides["direct", 0]),
        play(script, world.sides["kept", 0]),
        play(script, world.sides["rewritten", 0]),
    )
    attempts = [direct]
    problems: dict[str, Problem] = {}
    for other in (kept, rewritten):
        problem = comparison.problem(script, direct, other)
        if problem is not None and not await _varies(world, comparison, script, attempts, other):
            problems[other.side.path] = problem
    return Played(
        script=script,
        problems=problems,
        answers=len(direct.answers),
        asked_again=len(attempts) - 1,
        requests=Counter((step.api_key, step.version) for step in script.steps),
    )


async def _varies(
    world: World, comparison: Comparison, script: Script, attempts: list[Transcript], other: Transcript
) -> bool:
    """Return whether the broker itself, asked again, answers as the gateway did."""
    for attempt in range(1, ATTEMPTS):
        if attempt == len(attempts):
            attempts.append(await play(script, world.sides["direct", attempt]))
        if comparison.problem(script, attempts[attempt], other) is None:
            return True
    return False
