"""Threads and tasks that end by an exception are reported, and threads start again."""

from __future__ import annotations

import ast
import asyncio
import sys
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import plugins
import receiver
import spark_streaming
from receiver import workers
from spark_streaming import threads
from tests.unit.finalizers import at_every_line

#: Starts threads and tasks itself, or runs where nobody else does: a plugin's child process. The
#: log's own thread can't be logged. A sender and a spooler report their end themselves, and so does
#: a scrape endpoint.
_MAY_START = {
    "workers.py",
    "spark_streaming/log_writer.py",
    "spark_streaming/threads.py",
    "spark_streaming/scraping/server.py",
    "cli/events.py",  # its queue gets the end of each
    "doctor/destinations.py",  # its examination waits for the thread
    "host/child.py",
    "host/delivery/sender.py",
    "host/delivery/spooler.py",
    "store/declared_owners.py",  # its callers wait for the task
    "store/subscriptions.py",  # its callers wait for the task
    "testkit/threaded.py",  # its callers wait for the loop in the thread
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_names", set())
    monkeypatch.setattr(workers, "_shown", {})
    monkeypatch.setattr(workers, "_listeners", [])
    monkeypatch.setattr(workers, "_FIRST_PAUSE_S", 0.0)


def test_a_thread_starts_again_until_it_returns() -> None:
    runs = iter([ValueError("password: hunter2"), OSError(), None])

    def run() -> None:
        error = next(runs)
        if error is not None:
            raise error

    with capture_logs() as logs:
        workers.start_thread("subscriptions-7", run).join(120)
    assert [(line["worker"], line["error"]) for line in logs] == [
        ("subscriptions-N", "ValueError"),
        ("subscriptions-N", "OSError"),
    ]
    assert "in run" in logs[0]["traceback"]
    assert "hunter2" not in repr(logs)
    (problem,) = workers.problems()
    assert problem.startswith("the worker subscriptions-N ended by OSError ")


def test_a_thread_of_a_plugin_starts_again_until_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", workers._thread_ended)
    runs = iter([ValueError("password: hunter2"), OSError(), None])

    def run() -> None:
        error = next(runs)
        if error is not None:
            raise error

    with capture_logs() as logs:
        threads.start_thread("spool-files", run, pause_s=0.0).join(120)
    assert [(line["worker"], line["error"]) for line in logs] == [
        ("spool-files", "ValueError"),
        ("spool-files", "OSError"),
    ]
    assert "hunter2" not in repr(logs)


def test_a_task_is_reported_at_its_end() -> None:
    told: list[str] = []
    was_told = asyncio.Event()

    def tell(name: str) -> None:
        told.append(name)
        was_told.set()

    async def fail() -> None:
        raise LookupError

    async def main() -> None:
        workers.on_failure(asyncio.get_running_loop(), tell)
        task = workers.start_task("probe", fail())
        cancelled = workers.start_task("probe", asyncio.Event().wait())
        cancelled.cancel()
        await asyncio.gather(task, cancelled, return_exceptions=True)
        await asyncio.wait_for(was_told.wait(), 120)

    with capture_logs() as logs:
        asyncio.run(main())
    assert told == ["probe"]
    assert [line["error"] for line in logs] == ["LookupError"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_of_others_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", workers._thread_ended)
    with capture_logs() as logs:
        thread = threading.Thread(target=[].pop, name="librarys-own")
        thread.start()
        thread.join(120)
    assert [(line["worker"], line["error"]) for line in logs] == [("librarys-own", "IndexError")]


def test_the_number_of_names_is_bounded() -> None:
    with capture_logs():
        for number in range(200):
            workers.report("x" * number, ValueError())
    assert len(workers._names) == workers._MAX_NAMES + 1


def test_a_finalizer_may_fail_in_the_middle_of_a_report() -> None:
    names = iter([f"{letter}{second}" for letter in "abcdefgh" for second in "abcdefgh"])

    def finalizer() -> None:
        if (name := next(names, None)) is not None:
            workers.report(name, ValueError())

    def run() -> None:
        sys.settrace(at_every_line("receiver/workers.py", finalizer))
        workers.report("a task", LookupError())
        while len(workers.problems()) < 60:
            pass
        sys.settrace(None)

    with capture_logs() as logs:
        caller = threading.Thread(target=run, daemon=True)
        caller.start()
        caller.join(120)
    assert not caller.is_alive()
    assert [line["worker"] for line in logs].count("a task") == 1


def test_nothing_else_starts_threads_or_tasks() -> None:
    roots = [Path(package.__file__ or "").parent for package in (receiver, plugins, spark_streaming)]
    starts = {
        str(path.relative_to(root.parent)).removeprefix("receiver/")
        for root in roots
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"Thread", "Timer", "create_task", "ensure_future"}
    }
    assert starts == _MAY_START
