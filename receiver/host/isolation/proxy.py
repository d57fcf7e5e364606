"""Proxy for a plugin that runs in a child process.

Owns the process: its start, time-outs, exit, and restart with the next call. The sender decides
when the next call comes, and paces calls after failures as with any plugin. The process runs
:mod:`receiver.host.child`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from receiver.host.isolation.channel import (
    DUMPABLE,
    MAX_ANSWER_BYTES,
    OUT_OF_MEMORY_STATUS,
    PRIVATE,
    Answer,
    Channel,
    Load,
    Outcome,
    Request,
    pushes_to_bytes,
)
from receiver.host.settings import ProcessSettings
from receiver.plugin import (
    BatchRefusedError,
    ClientTelemetryReceiver,
    ExportResult,
    PermanentError,
    PluginConfig,
    Push,
    RetryableError,
    UnclearError,
)
from receiver.settings import PREFIX
from receiver.workers import report_end
from spark_streaming import dumps

_MODULE: Final = "receiver.host.child"

#: Seconds to start the interpreter and import the modules, also on a busy machine.
_LOAD_TIMEOUT_S: Final = 60.0

#: Seconds for the process to exit after its last answer.
_EXIT_TIMEOUT_S: Final = 2.0


class PluginCrashError(Exception):
    """The plugin raised an exception outside the contract in its process."""


class _ProcessGoneError(Exception):
    """The process exited, or was killed, during a call; the text gives the reason.

    Attributes:
        hung: Whether it was killed because the call took too long.
    """

    def __init__(self, reason: str, *, hung: bool = False) -> None:
        super().__init__(reason)
        self.hung = hung


class PluginProxy(ClientTelemetryReceiver):
    """Forwards the calls of a plugin to its process.

    If a call hangs, the proxy kills the process, and the call is retryable. If the process dies, a
    push may have killed it: the host compares with other pushes. The next call starts a new
    process.

    Args:
        plugin: The plugin, constructed here to check its settings, and not used further.
        own: The operator's settings for the plugin itself.

    Attributes:
        cpu_s: CPU seconds of exports in the process, as it reported them.
    """

    def __init__(
        self,
        plugin: ClientTelemetryReceiver,
        *,
        type_: str,
        own: Mapping[str, Any],
        settings: ProcessSettings,
    ) -> None:
        super().__init__(plugin.config)
        self.max_batch_items = plugin.max_batch_items
        self.restarts = 0
        self.cpu_s = 0.0
        self._type = type_
        self._config_json = json.dumps(own, default=str)
        self._settings = settings
        self._process: _Process | None = None
        self._started_before = False

    def start(self) -> None:
        """Start the process, and the plugin in it.

        Raises:
            RetryableError: The process or the plugin failed to start; the process has exited.
        """
        self._running_process()

    def export_batch(self, pushes: Sequence[Push]) -> ExportResult | None:
        """Export pushes in the process.

        Raises:
            RetryableError: The plugin raised it, or its process hung or failed to start.
            UnclearError: The plugin raised it, or its process died.
            BatchRefusedError: The plugin raised it.
            PermanentError: The plugin raised it.
            PluginCrashError: The plugin raised another exception.
        """
        process = self._running_process()
        try:
            answer = process.ask(Request.EXPORT, pushes_to_bytes(pushes), self._settings.call_timeout_s)
        except _ProcessGoneError as gone:
            self._process = None
            # A hanging plugin usually waits for its destination, so the pushes are not the cause.
            raise (RetryableError if gone.hung else UnclearError)(str(gone)) from None
        self.cpu_s += answer.cpu_s
        match answer.outcome:
            case Outcome.DONE:
                return ExportResult(
                    rejected_points=answer.rejected_points, message=answer.text, sent=answer.sent
                )
            case Outcome.RETRYABLE:
                raise RetryableError(answer.text, answer.retry_after_s)
            case Outcome.UNCLEAR:
                raise UnclearError(answer.text)
            case Outcome.BATCH_REFUSED:
                raise BatchRefusedError(answer.text, answer.rejected_points)
            case Outcome.PERMANENT:
                raise PermanentError(answer.text, answer.rejected_points)
            case Outcome.CRASH:
                raise PluginCrashError(answer.text)

    def use_config(self, config: PluginConfig) -> None:
        """Let the plugin read its files again in its process.

        Raises:
            RetryableError: The process hung or died; the next one reads the files at its start.
            PluginCrashError: The files can't be used; the plugin goes on with the old ones.
        """
        self.config = config
        if self._process is None:
            return
        try:
            answer = self._process.ask(Request.RENEW, b"", self._settings.call_timeout_s)
        except _ProcessGoneError as gone:
            self._process = None
            raise RetryableError(str(gone)) from None
        if answer.outcome is not Outcome.DONE:
            raise PluginCrashError(answer.text)

    def stop(self) -> None:
        """Stop the plugin and its process.

        Raises:
            PluginCrashError: The plugin failed to stop; its process has exited all the same.
        """
        process, self._process = self._process, None
        if process is None:
            return
        try:
            answer = process.ask(Request.STOP, b"", self._settings.call_timeout_s)
        except _ProcessGoneError as gone:
            raise PluginCrashError(str(gone)) from None
        finally:
            process.end()
        if answer.outcome is not Outcome.DONE:
            raise PluginCrashError(answer.text)

    def _running_process(self) -> _Process:
        if self._process is not None:
            return self._process
        self.restarts += self._started_before
        self._started_before = True
        load = Load(
            config=self._config_json,
            sys_path=sys.path,
            max_memory_bytes=self._settings.max_memory_bytes,
        )
        try:
            process = _Process(self._type)
            for request, body, timeout_s in (
                (Request.LOAD, load.model_dump_json().encode(), _LOAD_TIMEOUT_S),
                (Request.START, b"", self._settings.call_timeout_s),
            ):
                answer = process.ask(request, body, timeout_s)
                if answer.outcome is not Outcome.DONE:
                    process.end(timeout_s=0)
                    raise RetryableError(f"the plugin can't be started in its process: {answer.text}")
        except (_ProcessGoneError, OSError) as error:
            raise RetryableError(f"the plugin's process can't be started: {error}") from None
        self._process = process
        return process


class _Process:
    """One child process, from its start to its exit.

    Raises:
        OSError: The process can't be started.
    """

    def __init__(self, type_: str) -> None:
        ours, theirs = socket.socketpair()
        # exec(2) makes a process dumpable again, so the child must forbid dumps itself.
        privacy = DUMPABLE if dumps.allowed() else PRIVATE
        with theirs:
            try:
                self._popen = subprocess.Popen(  # noqa: S603 # our own interpreter and module
                    # -P: import no modules from the working directory.
                    [sys.executable, "-P", "-m", _MODULE, type_, str(theirs.fileno()), privacy],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=_environment(),
                )
            except BaseException:
                ours.close()
                raise
        self._channel = Channel(ours)

    def ask(self, request: Request, body: bytes, timeout_s: float) -> Answer:
        """Send a request and return its answer.

        Raises:
            _ProcessGoneError: The process has exited without an answer.
        """
        try:
            self._channel.send(request, body, timeout_s=timeout_s)
            _, answer = self._channel.receive(max_bytes=MAX_ANSWER_BYTES, timeout_s=timeout_s)
            read = Answer.model_validate_json(answer)
        except TimeoutError:
            self.end(timeout_s=0)
            raise _ProcessGoneError(
                f"{request.name.lower()} took longer than {timeout_s:g} s: the plugin's process was killed",
                hung=True,
            ) from None
        except ValueError:
            self.end(timeout_s=0)
            raise _ProcessGoneError("the plugin's process sent a malformed answer and was killed") from None
        except (EOFError, OSError):
            raise _ProcessGoneError(f"the plugin's process {_describe_exit(self.end())}") from None
        for ended in read.ended:
            report_end(ended.worker, ended.error, ended.traceback)
        return read

    def end(self, *, timeout_s: float = _EXIT_TIMEOUT_S) -> int:
        """Return the exit status, negative for a signal; kill after a time-out."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()
        finally:
            self._channel.close()


def _environment() -> dict[str, str]:
    # Any of the receiver's own variables may hold a secret, perhaps of another plugin.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
    # malloc would reserve 64 MB of address space for an arena of each thread.
    return {"MALLOC_ARENA_MAX": "2", **inherited}


def _describe_exit(status: int) -> str:
    if status == OUT_OF_MEMORY_STATUS:
        return "reached its limit process.max_memory_bytes"
    if status < 0:
        name = signal.strsignal(-status)
        return f"was ended by signal {-status}" + (f" ({name})" if name else "")
    return f"ended with status {status}"
