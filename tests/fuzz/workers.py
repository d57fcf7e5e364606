"""Runs fuzzing in worker processes, and detects their crashes and hangs from outside.

A worker writes each input into memory that it shares with its parent before it runs it, so that the
input which ended it is known. It works in slices; after each it says what came of it, so that an
interrupted run has figures.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import resource
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from tests.fuzz.fuzzer import Finding, Fuzzer, Outcome
from tests.fuzz.target import Target

#: Inputs of a slice, at most.
SLICE: Final = 20_000
#: A worker without a finished input for this long hangs.
_HANGS_AFTER_S: Final = 300.0
#: The address space of a worker. A larger need is a finding and does not exhaust the machine.
_MAX_ADDRESS_SPACE: Final = 8 << 30
_MAX_RESTARTS: Final = 5

_HEAD = struct.Struct("=QHI")  # inputs so far, the target's number, the input's length
_SHARED_BYTES: Final = 1 << 21


class _Shared:
    """The input at hand, in a file that parent and worker have mapped."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:  # noqa: PTH123  # a descriptor is all that is wanted
            self._map = mmap.mmap(file.fileno(), _SHARED_BYTES)
        self._inputs = 0

    def write(self, target: int, data: bytes) -> None:
        self._inputs += 1
        _HEAD.pack_into(self._map, 0, self._inputs, target, len(data))
        self._map[_HEAD.size : _HEAD.size + len(data)] = data

    def read(self) -> tuple[int, int, bytes]:
        """Return the count of inputs, the last target's number, and the last input."""
        inputs, target, size = _HEAD.unpack_from(self._map)
        return inputs, target, self._map[_HEAD.size : _HEAD.size + size]


def _work(
    targets: Sequence[Target], slices: Sequence[tuple[int, int]], seed: str, path: str, out: Connection
) -> None:
    """Run each slice in a worker: a target's number and a number of inputs."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_ADDRESS_SPACE, _MAX_ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    shared = _Shared(path)
    fuzzers: dict[int, Fuzzer] = {}
    for number, inputs in slices:
        if number not in fuzzers:

            def announce(data: bytes, number: int = number) -> None:
                shared.write(number, data)

            target = targets[number]
            fuzzers[number] = Fuzzer(target, f"{seed} {target.name}", announce)
        out.send(fuzzers[number].run(inputs))
    out.close()


@dataclass(slots=True, kw_only=True)
class _Worker:
    process: BaseProcess
    results: Connection
    path: Path
    shared: _Shared
    slices: list[tuple[int, int]]
    seed: str
    restarts: int = 0
    inputs: int = 0


def fuzz(targets: Sequence[Target], *, inputs: int, seed: str, processes: int) -> Iterator[Outcome]:
    """Fuzz targets, in processes of their own.

    Args:
        targets: The targets; their functions belong to modules, so that a new process finds them.
        inputs: How many inputs there shall be, of all targets together.
        seed: Where everything random comes from: the same seed makes the same inputs.
        processes: How many processes share the work.

    Yields:
        What came of each slice.
    """
    each = -(-inputs // (len(targets) * processes))
    slices = [
        (number, min(SLICE, each - start))
        for start in range(0, each, SLICE)
        for number in range(len(targets))
    ]
    workers = [_start(targets, slices, f"{seed} {number}") for number in range(processes)]
    try:
        while workers:
            ready = wait([worker.results for worker in workers], timeout=_HANGS_AFTER_S)
            for worker in list(workers):
                if worker.results in ready:
                    with contextlib.suppress(EOFError):
                        outcome: Outcome = worker.results.recv()
                        worker.slices.pop(0)
                        yield outcome
                        continue
                    worker.process.join()
                    problem = f"crash: the process ended with status {worker.process.exitcode}\n"
                elif worker.shared.read()[0] == worker.inputs and not ready:
                    worker.process.kill()
                    worker.process.join()
                    problem = f"hang: it was not over after {_HANGS_AFTER_S:g} s\n"
                else:
                    worker.inputs = worker.shared.read()[0]
                    continue
                workers.remove(worker)
                worker.path.unlink()
                if worker.slices:
                    inputs_so_far, number, data = worker.shared.read()
                    if not inputs_so_far:
                        raise RuntimeError(f"a worker ended before its first input: {problem}")
                    finding = Finding(target=targets[number].name, data=data, problem=problem)
                    yield Outcome(target=targets[number].name, findings=[finding])
                    if worker.restarts < _MAX_RESTARTS:
                        again = _start(targets, worker.slices, f"{worker.seed}'")
                        again.restarts = worker.restarts + 1
                        workers.append(again)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()
            worker.path.unlink()


def _start(targets: Sequence[Target], slices: Sequence[tuple[int, int]], seed: str) -> _Worker:
    # Not forked from the parent, which may have threads, of gRPC for one. Importing the targets in
    # each worker would cost more CPU time than a short run.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.fuzz.targets"])
    descriptor, path = tempfile.mkstemp(prefix="fuzz-")
    os.truncate(descriptor, _SHARED_BYTES)
    os.close(descriptor)
    results, out = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(targets, slices, seed, path, out), daemon=True)
    process.start()
    out.close()
    return _Worker(
        process=process,
        results=results,
        path=Path(path),
        shared=_Shared(path),
        slices=list(slices),
        seed=seed,
    )
