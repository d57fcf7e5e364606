"""Starts threads and background tasks, so that none of them ends in silence.

=======================  ========================================================================
Worker                   After an exception
=======================  ========================================================================
:func:`start_thread`     It is started again, after a pause that grows to a minute.
:func:`start_task`       It has ended. Its owner starts the next one, at once where nothing else is
                         due: ``on_defect``.
Any other thread, and    It has ended. :func:`install` catches these: threads of plugins and of
callbacks of the loop    libraries.
=======================  ========================================================================

Each such end is logged, counted by the worker's name, and shown in ``/readyz`` for
:data:`SHOWN_S` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_Result = TypeVar("_Result")

#: Seconds for which /readyz shows the end of a worker.
SHOWN_S: Final = 600.0

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0

#: Most names of workers that are counted one by one. Libraries choose names too.
_MAX_NAMES: Final = 64
_OTHERS: Final = "other"

_log = structlog.get_logger("receiver.workers")
_lock = threading.RLock()  # a finalizer may report in the middle of a report
_names: set[str] = set()
_shown: dict[str, tuple[float, str]] = {}  # by name: when it ended, and how
_listeners: list[Callable[[str], None]] = []


def start_thread(name: str, run: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread that runs a function until it returns.

    Args:
        run: Called again after an exception, with a pause before. It must return to stop.
    """

    def run_again() -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                run()
            except Exception as error:  # a defect, whatever it is
                report(name, error)
            else:
                return
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    thread = threading.Thread(target=run_again, name=name, daemon=True)
    thread.start()
    return thread


def start_task(
    name: str, coroutine: Coroutine[Any, Any, _Result], *, on_defect: Callable[[], object] | None = None
) -> asyncio.Task[_Result]:
    """Start a background task, and report its end by an exception.

    Args:
        name: The name of the kind of task, for the log and the metrics.
        coroutine: What it runs. The caller keeps the task.
        on_defect: Called after such an end, to start the next one after a pause.
    """
    task = asyncio.get_running_loop().create_task(coroutine, name=name)

    def ended(task: asyncio.Task[_Result]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            report(name, error)
            if on_defect is not None:
                on_defect()

    task.add_done_callback(ended)
    return task


def report(name: str, error: BaseException, *, is_logged: bool = False) -> None:
    """Log, count and show that a worker has ended by an exception.

    The log gets where it happened and not the error's text, which may hold a secret.
    """
    trace = "" if is_logged else "".join(traceback.format_tb(error.__traceback__))
    report_end(name, type(error).__name__, trace, is_logged=is_logged)


def report_end(name: str, error: str, trace: str, *, is_logged: bool = False) -> None:
    """Report like :func:`report` for a process of a plugin.

    Args:
        error: The name of the exception's type.
        trace: Where it happened.
    """
    name = re.sub(r"[0-9]+", "N", name)
    with _lock:
        if name not in _names and len(_names) >= _MAX_NAMES:
            name = _OTHERS
        _names.add(name)
        _shown[name] = time.monotonic(), error
    if not is_logged:
        _log.error("a worker has ended by an exception", worker=name, error=error, traceback=trace)
    for listener in _listeners:
        listener(name)


def problems() -> list[str]:
    """Return the workers that ended lately, for people."""
    now = time.monotonic()
    with _lock:
        return [
            f"the worker {name} ended by {error} {now - ended:.0f} s ago, a defect; see the log"
            for name, (ended, error) in _shown.copy().items()  # a finalizer may report now
            if now - ended < SHOWN_S
        ]


def on_failure(loop: asyncio.AbstractEventLoop, listener: Callable[[str], None]) -> None:
    """Call a function with the name of each worker that ends by an exception."""
    _listeners.append(partial(call_in_loop, loop, listener))


def call_in_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object
) -> None:
    """Call a function in an event loop that may have ended, from a thread."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


def install() -> None:
    """Report the ends of threads that others have started, and of finalizers."""
    threading.excepthook = _thread_ended
    sys.unraisablehook = _unraisable


def watch_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Report exceptions of an event loop's callbacks, and of tasks that nobody asks."""

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context.get("message", ""))
        report("event loop", error)

    loop.set_exception_handler(handle)


def _thread_ended(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_type is not SystemExit and arguments.exc_value is not None:
        name = "thread" if arguments.thread is None else arguments.thread.name
        report(name, arguments.exc_value)


def _unraisable(arguments: UnraisableHookArgs) -> None:
    if arguments.exc_value is not None:
        report("finalizer", arguments.exc_value)
