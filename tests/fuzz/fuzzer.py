"""Runs one target's inputs and measures each.

Findings are: an exception that ``run`` lets out, more than a second of CPU for one input, and a
peak of memory that one input raised by more than the target allows. An end of the process itself (a
crash in a codec's C code) is seen by whoever started it (:mod:`tests.fuzz.workers`).
"""

from __future__ import annotations

import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import Final

from tests.fuzz.coverage import Coverage
from tests.fuzz.mutation import Mutator
from tests.fuzz.target import Target

#: The most CPU seconds that one input may take.
MAX_CPU_S: Final = 1.0
#: One of this many inputs is traced.
_TRACED_EVERY: Final = 32
#: Inputs kept for one target at most. Each costs memory and makes the others rarer.
_MAX_CORPUS: Final = 4096
_MAX_FINDINGS: Final = 100
#: Below this an input is not measured again.
_WORTH_MEASURING_S: Final = 0.001
_HARNESS: Final = ("/tests/fuzz/fuzzer.py", "/tests/fuzz/coverage.py")


class TooSlowError(BaseException):
    """An input takes too long. Not an ``Exception``, so that a target can't catch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An input that showed a defect.

    Attributes:
        target: The target's name.
        data: The input.
        problem: What happened, for people.
    """

    target: str
    data: bytes
    problem: str

    @property
    def place(self) -> str:
        """Its identity: the lines of code in a traceback, or else its kind."""
        kind = self.problem.strip().splitlines()[-1].split(":", maxsplit=1)[0]
        lines = [line.strip() for line in self.problem.splitlines() if line.lstrip().startswith("File ")]
        ours = [line for line in lines if not any(harness in line for harness in _HARNESS)]
        # The place of an interruption is random.
        return "".join([self.target, *(() if kind == "time" else ours[-3:]), kind])


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The results of some inputs of one target.

    Attributes:
        target: The target's name.
        inputs: How many there were.
        cpu_s: The CPU time they took, with making them.
        slowest_s: The CPU time of the slowest.
        peak_memory: The process's greatest resident size so far, in bytes.
        corpus: How many inputs are kept to make others from.
        reached: Pairs of lines reached.
        findings: What was found, each place once.
    """

    target: str
    inputs: int = 0
    cpu_s: float = 0.0
    slowest_s: float = 0.0
    peak_memory: int = 0
    corpus: int = 0
    reached: int = 0
    findings: list[Finding] = field(default_factory=list)


class Fuzzer:
    """Feeds one target and keeps its interesting inputs between calls of :meth:`run`.

    Args:
        target: The target.
        seed: Everything random comes from it.
        announce: Told of each input before it runs.
    """

    def __init__(self, target: Target, seed: str, announce: Callable[[bytes], None]) -> None:
        self._target = target
        self._announce = announce
        self._random = Random(seed)
        self._mutator = Mutator(self._random, target.tokens, target.max_bytes)
        self._coverage = Coverage()
        self._corpus = [bytes(seed)[: target.max_bytes] for seed in target.seeds()]
        self._seeds_left = list(self._corpus)
        self._known: set[str] = set()
        self._tick = _Tick()

    def run(self, inputs: int) -> Outcome:
        """Run this many inputs."""
        target = self._target
        outcome = Outcome(target=target.name)
        started = time.process_time()
        with self._tick:
            for number in range(inputs):
                self._one(self._next(), outcome, traced=number % _TRACED_EVERY == 0 or bool(self._seeds_left))
                outcome.inputs += 1
        outcome.cpu_s = time.process_time() - started
        outcome.peak_memory = _peak_memory()
        outcome.corpus = len(self._corpus)
        outcome.reached = len(self._coverage.reached)
        return outcome

    def _next(self) -> bytes:
        if self._seeds_left:
            return self._seeds_left.pop()
        random = self._random.random
        corpus = self._corpus
        data = corpus[int(random() * len(corpus))]
        reshape = self._target.reshape
        if reshape is not None and random() < 0.5:
            return reshape(data, self._random)[: self._target.max_bytes]
        return self._mutator.mutate(data, corpus[int(random() * len(corpus))])

    def _one(self, data: bytes, outcome: Outcome, *, traced: bool) -> None:
        target = self._target
        self._announce(data)
        memory = _peak_memory()
        started = time.perf_counter()
        try:
            with self._tick.watch():
                grows = traced and self._coverage.grows_by(target.run, data)
                if not traced:
                    target.run(data)
            if grows and len(self._corpus) < _MAX_CORPUS:
                self._corpus.append(data)
        except TooSlowError:
            pass  # what it takes without interruption is measured below
        except Exception:  # that is what is looked for
            self._found(data, traceback.format_exc(), outcome)
            return
        took = time.perf_counter() - started
        if took > max(outcome.slowest_s, _WORTH_MEASURING_S):
            self._measure_again(data, outcome)
        grown = _peak_memory() - memory
        if grown > target.max_memory:
            self._found(data, f"memory: it raised the peak by {grown >> 20} MiB\n", outcome)

    def _measure_again(self, data: bytes, outcome: Outcome) -> None:
        """Measure CPU time again without tracing, because other work may slow the first run."""
        started = time.process_time()
        problem = ""
        try:
            with self._tick.watch():
                self._target.run(data)
        except TooSlowError:
            problem = traceback.format_exc()
        took = time.process_time() - started
        outcome.slowest_s = max(outcome.slowest_s, took)
        if took > MAX_CPU_S:
            self._found(data, f"{problem}time: it took more than {MAX_CPU_S:g} s of CPU\n", outcome)

    def _found(self, data: bytes, problem: str, outcome: Outcome) -> None:
        finding = Finding(target=self._target.name, data=data, problem=problem)
        if finding.place not in self._known and len(self._known) < _MAX_FINDINGS:
            self._known.add(finding.place)
            outcome.findings.append(finding)


class _Tick:
    """Interrupts an input that has seen two ticks of a clock of CPU time.

    A timer for each input would cost more than most inputs do.
    """

    def __init__(self) -> None:
        self._inputs = 0
        self._seen = 0
        self._running = False  # an interruption between two inputs would end the fuzzer

    def __enter__(self) -> None:
        signal.signal(signal.SIGPROF, self._on_tick)
        signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S, MAX_CPU_S)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Raise :class:`TooSlowError` in the block if it goes on for too long."""
        self._inputs += 1
        self._running = True
        try:
            yield
        finally:
            self._running = False

    def _on_tick(self, _number: int, _frame: FrameType | None) -> None:
        if self._running and self._inputs == self._seen:
            self._seen = 0
            raise TooSlowError
        self._seen = self._inputs


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
