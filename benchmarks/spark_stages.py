"""Reads what Spark knows of its finished stages and tasks, from its status store."""

from __future__ import annotations

from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

_MAX_TASKS = 10_000


class Stage(NamedTuple):
    """A stage of a Spark job.

    Attributes:
        seconds: From its start to its end.
        task_seconds: The run time of each task.
        cpu_s: CPU seconds of the tasks' threads in the JVM, without Python.
        shuffle_bytes: What its tasks wrote for the next stage.
    """

    seconds: float
    task_seconds: list[float]
    cpu_s: float
    shuffle_bytes: int


class FinishedStages:
    """Reads each stage once."""

    def __init__(self) -> None:
        self._next = 0

    def read(self, spark: SparkSession) -> list[Stage]:
        """Return the stages since the last call. None may run."""
        context = spark.sparkContext._jsc.sc()  # noqa: SLF001 -- no public API
        context.listenerBus().waitUntilEmpty()
        store = context.statusStore()
        found: list[Stage] = []
        while True:
            try:
                stage = store.lastStageAttempt(self._next)
            except Py4JJavaError:  # there is no such stage yet
                return found
            self._next += 1
            if stage.completionTime().isDefined():
                found.append(_stage(store, stage))


def _stage(store: Any, stage: Any) -> Stage:
    began, ended = (time.get().getTime() for time in (stage.submissionTime(), stage.completionTime()))
    tasks = store.taskList(stage.stageId(), stage.attemptId(), _MAX_TASKS)
    return Stage(
        seconds=(ended - began) / 1e3,
        task_seconds=[tasks.apply(at).duration().get() / 1e3 for at in range(tasks.size())],
        cpu_s=stage.executorCpuTime() / 1e9,
        shuffle_bytes=stage.shuffleWriteBytes(),
    )
