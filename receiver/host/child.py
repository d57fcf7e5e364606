"""Program of a plugin's child process: calls the plugin as the receiver requests.

Owns the child's signals, its memory limit, and its exit when the receiver exits. It never outlives
the receiver. It decides nothing: it answers with the outcome of each call, and the receiver's
sender decides.

:class:`receiver.host.isolation.proxy.PluginProxy` starts it with three arguments: the plugin's
type, the descriptor of the socket, and whether its memory is private. Everything else, secrets
above all, comes over the socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from receiver.host.delivery.observed_export import call_export
from receiver.host.discovery import HostedPlugin, PluginConfigError, load_plugins, read_config
from receiver.host.isolation.channel import (
    MAX_ENDED,
    OUT_OF_MEMORY_STATUS,
    PRIVATE,
    Answer,
    Channel,
    Ended,
    Load,
    Outcome,
    Request,
    pushes_from_bytes,
)
from receiver.host.redaction import Redaction
from receiver.plugin import (
    BatchRefusedError,
    ExportResult,
    PermanentError,
    RetryableError,
    UnclearError,
)
from spark_streaming import dumps

#: From <linux/prctl.h>: sets the signal that the kernel sends when the parent's thread ends.
_PR_SET_PDEATHSIG: Final = 1

_ANSWER: Final = 0


def main() -> None:
    """Serve one plugin until the receiver requests STOP or exits."""
    # A terminal or supervisor signals the whole process group; the receiver decides when the child
    # exits.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The thread below can't run while a plugin holds the interpreter lock, so the kernel must kill
    # us too.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.enable()
    type_, descriptor, privacy = sys.argv[1:]
    if privacy == PRIVATE:
        dumps.forbid()
    stream = socket.socket(fileno=int(descriptor))
    stream.set_inheritable(False)
    threading.Thread(target=_exit_with_receiver, args=(stream.fileno(),), daemon=True).start()
    threading.excepthook = _thread_ended
    sys.unraisablehook = _unraisable
    try:
        _serve(Channel(stream), type_)
    except MemoryError:
        os._exit(OUT_OF_MEMORY_STATUS)
    except (EOFError, ConnectionError):
        os._exit(0)  # the receiver has exited


def _exit_with_receiver(descriptor: int) -> None:
    """Exit, even during a call, when the receiver's end of the socket is closed."""
    hang_up = select.poll()
    hang_up.register(descriptor, 0)
    hang_up.poll()
    os._exit(0)


#: Ends of threads that the receiver has not heard of. A deque is thread-safe, also in finalizers.
_ended: Final[deque[Ended]] = deque(maxlen=MAX_ENDED)


def _thread_ended(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_type is not SystemExit and arguments.exc_value is not None:
        name = "thread" if arguments.thread is None else arguments.thread.name
        _note_end(name, arguments.exc_value)


def _unraisable(arguments: sys.UnraisableHookArgs) -> None:
    if arguments.exc_value is not None:
        _note_end("finalizer", arguments.exc_value)


def _note_end(name: str, error: BaseException) -> None:
    trace = "".join(traceback.format_tb(error.__traceback__))
    _ended.append(Ended(worker=name[:100], error=type(error).__name__[:100], traceback=trace[-4_000:]))


def _take_ended() -> list[Ended]:
    """Return what has ended since the last call."""
    taken = []
    with contextlib.suppress(IndexError):
        while True:
            taken.append(_ended.popleft())
    return taken[:MAX_ENDED]


def _serve(channel: Channel, type_: str) -> None:
    _, body = channel.receive()
    load = Load.model_validate_json(body)
    sys.path[:] = load.sys_path
    try:
        (hosted,) = load_plugins([{**json.loads(load.config), "type": type_}])
    except PluginConfigError as error:
        _send(channel, Answer(outcome=Outcome.CRASH, text=str(error).removeprefix("plugins[0].")))
        return
    redaction = Redaction(hosted.plugin.config)
    _limit_memory(load.max_memory_bytes)
    _send(channel, Answer(outcome=Outcome.DONE))
    request = Request.LOAD
    while request is not Request.STOP:
        kind, body = channel.receive()
        request = Request(kind)
        began = time.process_time()
        answer = _answer(functools.partial(_call, hosted, request, body, redaction), redaction)
        answer = answer.model_copy(update={"cpu_s": time.process_time() - began})
        if request is Request.START:
            _limit_memory(load.max_memory_bytes)
        _send(channel, answer)


def _send(channel: Channel, answer: Answer) -> None:
    answer = answer.model_copy(update={"ended": _take_ended()})
    channel.send(_ANSWER, answer.model_dump_json().encode())


def _limit_memory(additional_bytes: int) -> None:
    """Limit the address space to the current size plus a number of bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + additional_bytes
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _call(hosted: HostedPlugin, request: Request, body: bytes, redaction: Redaction) -> ExportResult | None:
    plugin = hosted.plugin
    match request:
        case Request.START:
            plugin.start()
        case Request.EXPORT:
            return call_export(plugin, pushes_from_bytes(body))
        case Request.STOP:
            plugin.stop()
        case Request.RENEW:
            config = read_config(hosted)
            redaction.add(config)
            plugin.use_config(config)
        case Request.LOAD:
            raise ValueError("the plugin is loaded already")
    return None


def _answer(call: Callable[[], ExportResult | None], redaction: Redaction) -> Answer:
    """Make the call and return its outcome."""
    # The conversions are inside, because the plugin's values may be of any type.
    try:
        try:
            result = call() or ExportResult()
            return Answer(
                outcome=Outcome.DONE,
                text=redaction.text(str(result.message)),
                rejected_points=max(0, int(result.rejected_points)),
                sent=bool(result.sent),
            )
        except RetryableError as error:
            return Answer(
                outcome=Outcome.RETRYABLE,
                text=redaction.text(str(error)),
                retry_after_s=None if error.retry_after_s is None else float(error.retry_after_s),
            )
        except UnclearError as error:
            return Answer(outcome=Outcome.UNCLEAR, text=redaction.text(str(error)))
        except PermanentError as error:
            refused = isinstance(error, BatchRefusedError)
            return Answer(
                outcome=Outcome.BATCH_REFUSED if refused else Outcome.PERMANENT,
                text=redaction.text(str(error)),
                rejected_points=max(0, int(error.rejected_points)),
            )
    except MemoryError:
        raise  # exit, because a new process has all its memory again
    except BaseException as error:  # the contract: anything else is a crash
        return Answer(outcome=Outcome.CRASH, text=redaction.exception(error))


if __name__ == "__main__":
    main()
