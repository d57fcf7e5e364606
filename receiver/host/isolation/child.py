"""What runs in a plugin's own process: the plugin, called as the receiver asks over a pair of sockets.

Owns the child's end: its signals, its memory limit, its end when the receiver's comes. It outlives the
receiver in no case, and decides nothing: what a call gave is told, and the receiver's sender does the rest.

Started by :class:`receiver.host.isolation.proxy.PluginProxy`, with the plugin's type, the descriptor of the
socket and whether its memory is private as arguments. Everything else, secrets above all, comes over the
socket.
"""

from __future__ import annotations

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
from collections.abc import Callable
from pathlib import Path
from typing import Final

from receiver import dumps
from receiver.host.delivery.failure_log import Redaction
from receiver.host.delivery.observed_export import call_export
from receiver.host.discovery import PluginConfigError, load_plugins
from receiver.host.isolation.channel import (
    OUT_OF_MEMORY_STATUS,
    PRIVATE,
    Answer,
    Load,
    Outcome,
    PluginChannel,
    Request,
    pushes_from_bytes,
)
from receiver.plugin import (
    BatchRefusedError,
    ClientTelemetryReceiver,
    ExportResult,
    PermanentError,
    RetryableError,
)

__all__ = ["main"]

#: From <linux/prctl.h>: the signal that the kernel sends when the parent's thread ends.
_PR_SET_PDEATHSIG: Final = 1

_ANSWER: Final = 0


def main() -> None:
    """Serve one plugin until the receiver says stop, or is gone."""
    # The receiver decides when this ends: a signal to its group, from a terminal or a supervisor, is its own.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Code that holds the interpreter's lock keeps the thread below from seeing that the receiver is gone.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.enable()
    type_, descriptor, privacy = sys.argv[1:]
    if privacy == PRIVATE:
        dumps.forbid()
    end = socket.socket(fileno=int(descriptor))
    end.set_inheritable(False)
    threading.Thread(target=_end_with_receiver, args=(end.fileno(),), daemon=True).start()
    try:
        _serve(PluginChannel(end), type_)
    except MemoryError:
        os._exit(OUT_OF_MEMORY_STATUS)
    except (EOFError, ConnectionError):
        os._exit(0)  # the receiver is gone


def _end_with_receiver(descriptor: int) -> None:
    """End the process, whatever it is doing, when the other end of the socket is closed."""
    hang_up = select.poll()
    hang_up.register(descriptor, 0)
    hang_up.poll()
    os._exit(0)


def _serve(channel: PluginChannel, type_: str) -> None:
    _, body = channel.receive()
    load = Load.model_validate_json(body)
    sys.path[:] = load.sys_path
    try:
        (hosted,) = load_plugins([{**json.loads(load.config), "type": type_}])
    except PluginConfigError as error:
        _tell(channel, Answer(outcome=Outcome.CRASH, text=str(error).removeprefix("plugins[0].")))
        return
    plugin, redaction = hosted.plugin, Redaction(hosted.plugin.config)
    _limit_memory(load.max_memory_bytes)
    _tell(channel, Answer(outcome=Outcome.DONE))
    request = Request.LOAD
    while request is not Request.STOP:
        kind, body = channel.receive()
        request = Request(kind)
        began = time.process_time()
        answer = _answer(functools.partial(_call, plugin, request, body), redaction)
        answer = answer.model_copy(update={"cpu_s": time.process_time() - began})
        if request is Request.START:
            _limit_memory(load.max_memory_bytes)
        _tell(channel, answer)


def _tell(channel: PluginChannel, answer: Answer) -> None:
    channel.send(_ANSWER, answer.model_dump_json().encode())


def _limit_memory(beyond: int) -> None:
    """Let the process take so many bytes of address space beyond what it has by now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + beyond
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _call(plugin: ClientTelemetryReceiver, request: Request, body: bytes) -> ExportResult | None:
    match request:
        case Request.START:
            plugin.start()
        case Request.EXPORT:
            return call_export(plugin, pushes_from_bytes(body))
        case Request.STOP:
            plugin.stop()
        case Request.LOAD:
            raise ValueError("the plugin is loaded already")
    return None


def _answer(call: Callable[[], ExportResult | None], redaction: Redaction) -> Answer:
    """Call, and say how it went; what the plugin gave us is read inside, as it may be of any type."""
    try:
        try:
            result = call() or ExportResult()
            return Answer(
                outcome=Outcome.DONE,
                text=redaction.text(str(result.message)),
                rejected_points=max(0, int(result.rejected_points)),
            )
        except RetryableError as error:
            return Answer(
                outcome=Outcome.RETRYABLE,
                text=redaction.text(str(error)),
                retry_after_s=None if error.retry_after_s is None else float(error.retry_after_s),
            )
        except PermanentError as error:
            refused = isinstance(error, BatchRefusedError)
            return Answer(
                outcome=Outcome.BATCH_REFUSED if refused else Outcome.PERMANENT,
                text=redaction.text(str(error)),
                rejected_points=max(0, int(error.rejected_points)),
            )
    except MemoryError:
        raise  # what it holds is lost with it; a new process has all of its memory again
    except BaseException as error:  # the contract: anything else is a crash
        return Answer(outcome=Outcome.CRASH, text=redaction.exception(error))


if __name__ == "__main__":
    main()
