"""A plugin in a process of its own, as a plugin: what it does there harms nothing here.

Owns the process: its start, its time-outs, its end, and its restart with the next call. When that comes is
the sender's to decide, which paces calls after failures as with any plugin. What runs in the process is
:mod:`receiver.host.isolation.child`.
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

from receiver import dumps
from receiver.host.isolation.channel import (
    DUMPABLE,
    MAX_ANSWER_BYTES,
    OUT_OF_MEMORY_STATUS,
    PRIVATE,
    Answer,
    Load,
    Outcome,
    PluginChannel,
    Request,
    pushes_to_bytes,
)
from receiver.host.settings import ProcessSettings
from receiver.plugin import (
    BatchRefusedError,
    ClientTelemetryContext,
    ClientTelemetryPayload,
    ClientTelemetryReceiver,
    ExportResult,
    PermanentError,
    Push,
    PushIdentity,
    RetryableError,
)
from receiver.settings.environment import PREFIX

__all__ = ["PluginCrashError", "PluginProxy"]

_MODULE: Final = "receiver.host.isolation.child"

#: For the interpreter, the receiver's modules and the plugin's, also on a busy machine; no call of it yet.
_LOAD_WITHIN_S: Final = 60.0

#: How long a process that has said its last word may take to end.
_END_WITHIN_S: Final = 2.0

#: Pushes in whose export the process died so often in a row are held to be the reason.
_MOST_DEATHS: Final = 3


class PluginCrashError(Exception):
    """The plugin raised in its process what the contract doesn't know; the text says what and where."""


class _ProcessGoneError(Exception):
    """The process ended, or was killed, in a call; the text says why.

    Attributes:
        hung: Whether it was killed because the call took too long.
    """

    def __init__(self, reason: str, *, hung: bool = False) -> None:
        super().__init__(reason)
        self.hung = hung


class PluginProxy(ClientTelemetryReceiver):
    """Runs a plugin in a process of its own.

    A call that hangs is killed and may be tried again, so may one in which the process dies; the next call
    starts the process anew. Pushes in whose export it has died three times in a row are refused as a batch,
    so that the host finds the one that kills it by halving.

    Args:
        plugin: The plugin as constructed here, which proves its settings; it is not used further.
        type_: Its entry point's name.
        own: Its own settings as the operator gave them.
        settings: What the process may take.

    Attributes:
        restarts: How often the process was started again.
        cpu_s: CPU seconds that exports took in the process, as far as it said.
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
        self._died_of: list[PushIdentity] = []
        self._deaths = 0

    def start(self) -> None:
        """Start the process, and the plugin in it.

        Raises:
            RetryableError: One of them could not be started; what there was of it is gone.
        """
        self._running()

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> ExportResult | None:
        """Have one push exported; see :meth:`export_batch`."""
        return self.export_batch([Push(context=context, payload=payload)])

    def export_batch(self, pushes: Sequence[Push]) -> ExportResult | None:
        """Have pushes exported.

        Raises:
            RetryableError: The plugin said so, or its process hung, died or can't be started.
            BatchRefusedError: The plugin said so, or its process dies of these pushes.
            PermanentError: The plugin said so.
            PluginCrashError: The plugin raised something else.
        """
        process = self._running()
        try:
            answer = process.ask(Request.EXPORT, pushes_to_bytes(pushes), self._settings.call_timeout_s)
        except _ProcessGoneError as gone:
            self._process = None
            raise self._died(gone, pushes) from None
        self._deaths = 0
        self.cpu_s += answer.cpu_s
        match answer.outcome:
            case Outcome.DONE:
                return ExportResult(rejected_points=answer.rejected_points, message=answer.text)
            case Outcome.RETRYABLE:
                raise RetryableError(answer.text, answer.retry_after_s)
            case Outcome.BATCH_REFUSED:
                raise BatchRefusedError(answer.text, answer.rejected_points)
            case Outcome.PERMANENT:
                raise PermanentError(answer.text, answer.rejected_points)
            case Outcome.CRASH:
                raise PluginCrashError(answer.text)

    def stop(self) -> None:
        """Stop the plugin, and end its process.

        Raises:
            PluginCrashError: The plugin failed to stop; its process has ended all the same.
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

    def _running(self) -> _Process:
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
                (Request.LOAD, load.model_dump_json().encode(), _LOAD_WITHIN_S),
                (Request.START, b"", self._settings.call_timeout_s),
            ):
                answer = process.ask(request, body, timeout_s)
                if answer.outcome is not Outcome.DONE:
                    process.end(within_s=0)
                    raise RetryableError(f"the plugin can't be started in its process: {answer.text}")
        except (_ProcessGoneError, OSError) as error:
            raise RetryableError(f"the plugin's process can't be started: {error}") from None
        self._process = process
        return process

    def _died(self, gone: _ProcessGoneError, pushes: Sequence[Push]) -> RetryableError | BatchRefusedError:
        # Who hangs waits for a destination, as a rule; these pushes are no worse than the next ones.
        if gone.hung:
            return RetryableError(str(gone))
        keys = [push.identity for push in pushes]
        self._deaths = self._deaths + 1 if keys == self._died_of else 1
        self._died_of = keys
        if self._deaths < _MOST_DEATHS:
            return RetryableError(str(gone))
        self._deaths = 0
        return BatchRefusedError(f"{gone}, {_MOST_DEATHS} times in a row with the same pushes")


class _Process:
    """One process, from its start to its end.

    Args:
        type_: The plugin's type.

    Raises:
        OSError: The system lets us start none.
    """

    def __init__(self, type_: str) -> None:
        ours, theirs = socket.socketpair()
        # The kernel lets a fresh program be dumped, whatever holds for the one that starts it.
        privacy = DUMPABLE if dumps.allowed() else PRIVATE
        with theirs:
            try:
                self._popen = subprocess.Popen(  # noqa: S603 # our own interpreter and module
                    # -P: modules in the working directory are no modules of ours.
                    [sys.executable, "-P", "-m", _MODULE, type_, str(theirs.fileno()), privacy],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=_environment(),
                )
            except BaseException:
                ours.close()
                raise
        self._channel = PluginChannel(ours)

    def ask(self, request: Request, body: bytes, timeout_s: float) -> Answer:
        """Send a request and wait for its answer.

        Raises:
            _ProcessGoneError: There is none; the process has ended.
        """
        try:
            self._channel.send(request, body, timeout_s=timeout_s)
            _, answer = self._channel.receive(max_bytes=MAX_ANSWER_BYTES, timeout_s=timeout_s)
            return Answer.model_validate_json(answer)
        except TimeoutError:
            self.end(within_s=0)
            raise _ProcessGoneError(
                f"{request.name.lower()} took longer than {timeout_s:g} s: the plugin's process was killed",
                hung=True,
            ) from None
        except ValueError:
            self.end(within_s=0)
            raise _ProcessGoneError("the plugin's process sent what is no answer, and was killed") from None
        except (EOFError, OSError):
            raise _ProcessGoneError(f"the plugin's process {_ended(self.end())}") from None

    def end(self, *, within_s: float = _END_WITHIN_S) -> int:
        """Wait for the end, and kill it if that does not come.

        Args:
            within_s: How long to wait, in seconds.

        Returns:
            The exit status, negative for a signal.
        """
        try:
            return self._popen.wait(within_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()
        finally:
            self._channel.close()


def _environment() -> dict[str, str]:
    # Any of the receiver's own variables may hold a secret, also of another plugin.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
    # Each thread's own arena would count 64 MB of address space, used or not.
    return {"MALLOC_ARENA_MAX": "2", **inherited}


def _ended(status: int) -> str:
    if status == OUT_OF_MEMORY_STATUS:
        return "ran out of the memory that process.max_memory_bytes lets it take"
    if status < 0:
        return f"was ended by signal {-status} ({signal.strsignal(-status)})"
    return f"ended with status {status}"
