"""A model of the roll-up on a cluster: points a second by the number of executor cores.

A batch is read by one stage of Spark and reconciled by the next one, and the driver commits it.
Batches follow each other. So the time of a batch is a sum::

    driver   = fixed + dispatch * tasks + commit * points
    read     = read * points * (files of the busiest core / files)
    shuffle  = shuffle bytes * points / (cores * network)
    tasks    = (task + PostgreSQL) * points * (share of the longest task)

A task waits for PostgreSQL, so that time adds to its own. Beyond some cores PostgreSQL is the
limit: then ``tasks`` is the time that its cores need, or the disk of its write-ahead log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_streaming.routing import SLOTS, Routes

_MILLION: Final = 1_000_000
_DRAWS: Final = 20
_SEED: Final = 714
#: Spark runs at least two tasks on a cluster.
_MIN_TASKS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What was measured of a point, in CPU microseconds or bytes, and of a batch, in seconds.

    Attributes:
        read_us: Of an executor: read, decode, write the shuffle.
        task_us: Of an executor: all else, in the JVM and in Python.
        postgresql_us: Of PostgreSQL, while a task waits for it.
        commit_us: Of the time in which only the driver and its transaction work.
        fixed_s: A batch with next to no points.
        dispatch_s: What each further task costs the driver.
        shuffle_bytes: Bytes between executors.
        wal_bytes: Bytes of the write-ahead log.
    """

    read_us: float
    task_us: float
    postgresql_us: float
    commit_us: float
    fixed_s: float
    dispatch_s: float
    shuffle_bytes: float
    wal_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch.

    Attributes:
        points: Its points.
        files: Its files; one core reads one.
        instances: The number of instances of each client id. All have as many points.
        heavy: A client id with more than this many times the share of a task is spread by instance.
    """

    points: float
    files: int
    instances: Sequence[int]
    heavy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What executors share.

    Attributes:
        postgresql_cores: Cores of PostgreSQL.
        wal_bytes_s: Bytes a second that its disk takes.
        network_bytes_s: Bytes a second that an executor core receives.
        all_cores: Cores of all processes together, if they share one machine.
    """

    postgresql_cores: float
    wal_bytes_s: float
    network_bytes_s: float
    all_cores: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What the model says of a number of cores.

    Attributes:
        points_s: Points a second.
        seconds: Of a batch.
        longest: Share of the points of a batch in the longest task.
        ceiling: What takes the most time of a batch beyond the work that more cores divide, or
            ``cores`` if that work takes the most.
    """

    points_s: float
    seconds: float
    longest: float
    ceiling: str


def predict(parts: Parts, batch: Batch, cores: int, limits: Limits) -> Predicted:
    """Predict the points a second of executors with some cores in total."""
    points = batch.points
    tasks = max(cores, _MIN_TASKS)
    longest = 1.0 if cores == 1 else longest_share(batch, tasks)
    driver = parts.fixed_s + parts.dispatch_s * tasks + _seconds(parts.commit_us, points)
    evenly_read = _seconds(parts.read_us, points) / cores
    read = _seconds(parts.read_us, points) * math.ceil(batch.files / cores) / batch.files
    shuffle = parts.shuffle_bytes * points / (cores * limits.network_bytes_s)
    task = _seconds(parts.task_us + parts.postgresql_us, points)
    # Each is a time that the tasks of a batch need at least.
    needed = {
        "skew": task * longest,
        "PostgreSQL's cores": _seconds(parts.postgresql_us, points) / limits.postgresql_cores,
        "write-ahead log": parts.wal_bytes * points / limits.wal_bytes_s,
        "shared machine": task / limits.all_cores,
    }
    slowest = max(needed, key=lambda name: needed[name])
    seconds = driver + read + shuffle + needed[slowest]
    lost = {
        "cores": evenly_read + task / cores,
        "driver": driver,
        "files": read - evenly_read,
        "shuffle": shuffle,
        slowest: needed[slowest] - task / cores,
    }
    return Predicted(
        points_s=points / seconds,
        seconds=seconds,
        longest=longest,
        ceiling=max(lost, key=lambda name: lost[name]),
    )


def longest_share(batch: Batch, tasks: int) -> float:
    """Return the expected share of the points of a batch in the task with the most.

    Client ids are put into slots at random, as a hash does, and so are the instances of heavy ones.
    Slots are dealt to tasks by their points.
    """
    weights: npt.NDArray[np.float64] = np.array(batch.instances, np.float64) / sum(batch.instances)
    is_heavy = weights * tasks > batch.heavy
    spread = [
        np.full(count, weight / count)
        for count, weight in zip(batch.instances, weights, strict=True)
        if weight * tasks > batch.heavy
    ]
    routed = np.concatenate([weights[~is_heavy], *spread])
    chance = np.random.default_rng(_SEED)
    longest = []
    for _ in range(_DRAWS):
        of_slots = np.bincount(chance.integers(0, SLOTS, len(routed)), weights=routed, minlength=SLOTS)
        routes = Routes()
        routes.weigh(dict(enumerate((of_slots * _MILLION).astype(int).tolist())))
        longest.append(np.bincount(routes.deal(tasks), weights=of_slots).max())
    return float(np.mean(longest))


def _seconds(us: float, points: float) -> float:
    return us * points / _MILLION
