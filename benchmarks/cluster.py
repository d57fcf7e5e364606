"""Benchmark of the cluster's list: three receivers, 10,000 connections, one receiver dead.

The connections are of real clients' kind: each has sent one ApiVersions. The receiver that is dead
was one of the cluster, and is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.figures import Figure, Report, table
from benchmarks.idle import held
from benchmarks.load_generator import fake_broker
from benchmarks.processes import BenchmarkError, Running
from benchmarks.relays import UNLIMITED, serve
from tests.testbed.ports import LOOPBACK, free_port

_CONNECTIONS = 10_000
_MS_GOAL = 300.0
_HTTP_SECONDS = 60.0

#: The lists, by what they are for people.
_LISTS: dict[str, dict[str, str | int]] = {
    "100 connections": {},
    "100 with most bytes": {"order_by": "-bytes_in"},
    "1,000 connections": {"limit": 1000},
    "by principal": {"by": "principal"},
}


def run(folder: Path, *, quick: bool) -> Report:
    """Measure the lists of the cluster before and after a receiver's death."""
    rounds = 10 if quick else 50
    with fake_broker(folder) as (broker, _), contextlib.ExitStack() as stack:
        rests = [f"{LOOPBACK}:{free_port()}" for _ in range(3)]
        members = [f"http://{rest}" for rest in rests]
        binds = [f"{LOOPBACK}:{free_port()}" for _ in range(3)]
        receivers: list[Running] = []
        for number, (rest, bind) in enumerate(zip(rests, binds, strict=True), 1):
            own = folder / f"receiver-{number}"
            own.mkdir()
            configuration = {
                "gateway": {"relays": 1},
                "listeners": [{"name": "CLIENT", "bind": bind, "upstream": broker}],
                "rest": {"bind": rest},
                "cluster": {"members": members},
                "limits": UNLIMITED,
            }
            receivers.append(stack.enter_context(serve(configuration, own)))
        for bind in binds[:2]:
            stack.enter_context(held(bind, _CONNECTIONS // 2, None))
        client = stack.enter_context(
            httpx.Client(base_url=members[0], trust_env=False, timeout=_HTTP_SECONDS)
        )
        alive = dict(_measured(client, rounds, dead=None))
        os.kill(receivers[2].pid, signal.SIGKILL)
        dead = dict(_measured(client, rounds, dead=members[2]))
    head = ("list of the cluster", "all alive: median ms", "one dead: median ms", "longest ms")
    rows = [
        (
            name,
            f"{statistics.median(alive[name]):.0f}",
            f"{statistics.median(values):.0f}",
            f"{max(values):.0f}",
        )
        for name, values in dead.items()
    ]
    slowest = max(statistics.median(values) for values in dead.values())
    return Report(
        title=f"Lists of a cluster of three receivers with {_CONNECTIONS:,} connections, one receiver dead",
        text=table(head, rows),
        raw={"alive": alive, "dead": dead},
        figures=[
            Figure(name="list of the cluster, one receiver dead", value=slowest, unit="ms", at_most=_MS_GOAL)
        ],
    )


def _measured(client: httpx.Client, rounds: int, *, dead: str | None) -> Iterator[tuple[str, list[float]]]:
    """Yield the milliseconds of each list; ``dead`` must be named, and nobody else."""
    for name, parameters in _LISTS.items():
        found: list[float] = []
        for _ in range(rounds):
            began = time.perf_counter()
            answer = client.get("/v1/connections", params={"scope": "cluster", **parameters})
            found.append((time.perf_counter() - began) * 1000)
            _check(answer.raise_for_status().json(), dead, is_sum="by" in parameters)
        yield name, found


def _check(page: dict[str, Any], dead: str | None, *, is_sum: bool) -> None:
    missing = [member["url"] for member in page["members"] if not member["answered"]]
    if missing != ([] if dead is None else [dead]):
        raise BenchmarkError(f"the cluster's list names {missing} as missing, expected {dead}")
    if is_sum and sum(group["connections"] for group in page["items"]) != _CONNECTIONS:
        raise BenchmarkError(f"the cluster's list does not have {_CONNECTIONS} connections")
