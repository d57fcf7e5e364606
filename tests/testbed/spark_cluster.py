"""Owns a standalone Spark cluster on loopback: a master, and workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pyspark

from tests.testbed.cpu import with_descendants
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess
from tests.testbed.server import Server

_READY_WITHIN_S = 300.0
_HOME = Path(pyspark.__file__).parent
#: The command.
SPARK_SUBMIT = _HOME / "bin" / "spark-submit"

_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
_PYTHON = b"pyspark.daemon"
_REGISTERED = "Successfully registered with master"


class SparkCluster(Server):
    """A master and some workers, each a process of its own.

    Each worker has a loopback address of its own, because Spark takes one address for one host, and
    runs no speculative copy of a task on the host of the first. A worker starts an executor for
    each application, as a process of its own.

    Args:
        workers: Number of workers.
        cores: Cores that a worker gives to executors.
        worker_memory: Memory that a worker gives to executors, as Spark writes it.
        pinned: Run a worker and its executors on one core of this machine only: the first worker on
            the first core, and so on.
    """

    def __init__(
        self, *, workers: int = 2, cores: int = 1, worker_memory: str = "1g", pinned: bool = False
    ) -> None:
        super().__init__("spark")
        self._port = free_port()
        self._cores = cores
        self._worker_memory = worker_memory
        self._pinned = pinned
        self._count = workers
        self._workers: list[ChildProcess] = []

    @property
    def url(self) -> str:
        """The value of ``spark.master``."""
        return f"spark://{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """Start the master and the workers.

        Raises:
            StartError: One did not come up; shows the tail of its log.
        """
        self._process = self._run("Master", "master", LOOPBACK, "--port", str(self._port))
        self._process.wait_until_ready(
            lambda: "I have been elected leader" in self.log_text(), timeout_s=_READY_WITHIN_S
        )
        for number in range(self._count):
            name = f"worker-{number}"
            options = (
                "--cores",
                str(self._cores),
                "--memory",
                self._worker_memory,
                "--work-dir",
                str(self._folder() / name),
            )
            # The JVM and its children inherit it.
            on = ["taskset", "--cpu-list", str(_cores()[number])] if self._pinned else []
            worker = self._run(
                "Worker", name, f"127.0.0.{number + 2}", "--port", str(free_port()), *options, self.url, on=on
            )
            self._workers.append(worker)
        for worker in self._workers:
            worker.wait_until_ready(lambda: _REGISTERED in worker.log_text(), timeout_s=_READY_WITHIN_S)  # noqa: B023

    @property
    def workers(self) -> list[int]:
        """The ids of the workers' processes."""
        return [worker.pid for worker in self._workers]

    def executors(self) -> list[int]:
        """The ids of the executors' processes, of all applications."""
        return [
            pid
            for worker in self._workers
            for pid in with_descendants(worker.pid)[1:]
            if _EXECUTOR in _command(pid)
        ]

    def python_workers(self, executor: int) -> list[int]:
        """The ids of the processes in which an executor runs Python.

        A daemon, which is left out, starts them. An executor has one for each task that runs, and
        keeps it for a while.
        """
        found = [pid for pid in with_descendants(executor)[1:] if _PYTHON in _command(pid)]
        return found[1:]

    def close(self) -> None:
        """End everything, with executors that are stopped too."""
        for pid in self.executors():
            os.kill(pid, signal.SIGKILL)
        for worker in self._workers:
            worker.kill()
        super().close()

    def _run(self, role: str, name: str, host: str, *options: str, on: Sequence[str] = ()) -> ChildProcess:
        folder = self._folder()
        return ChildProcess(
            f"Spark's {name}",
            [
                *on,
                _HOME / "bin" / "spark-class",
                f"org.apache.spark.deploy.{role.lower()}.{role}",
                *("--host", host, "--webui-port", str(free_port())),
                *options,
            ],
            log=folder / f"{name}.log",
            cwd=folder,
            env={"SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"},
        )


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
