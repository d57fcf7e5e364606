"""A plugin that misbehaves as each push's client id demands."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from receiver.plugin import (
    BatchRefusedError,
    ClientTelemetryContext,
    ClientTelemetryPayload,
    ClientTelemetryReceiver,
    ExportResult,
    PermanentError,
    PluginConfig,
    Push,
    RetryableError,
    UnclearError,
)
from receiver.plugin.secret import Secret
from spark_streaming import dumps


class MisbehavingConfig(PluginConfig):
    journal: Path
    needs: Path | None = None
    token: Secret | None = None


class Misbehaving(ClientTelemetryReceiver):
    Config = MisbehavingConfig
    max_batch_items = 50

    def __init__(self, config: MisbehavingConfig) -> None:
        super().__init__(config)
        self._settings = config

    def start(self) -> None:
        if self._settings.needs is not None:
            self._settings.needs.read_bytes()
        self._write("started")

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> ExportResult | None:
        return self.export_batch([Push(context=context, payload=payload)])

    def export_batch(self, pushes: Sequence[Push]) -> ExportResult | None:
        result = None
        for push in pushes:
            result = self._do(push.context.client_id, push)
        self._write(f"took {len(pushes)}")
        return result

    def stop(self) -> None:
        self._write("stopped")

    def _do(self, what: str, push: Push) -> ExportResult | None:
        match what:
            case "exit":
                os._exit(3)
            case "segmentation fault":
                ctypes.string_at(0)
            case "kill":
                os.kill(os.getpid(), 9)
            case "hang":
                time.sleep(600)
            case "hang with the interpreter's lock":
                ctypes.PyDLL(None).sleep(600)
            case "hog":
                hog: list[bytearray] = []
                while True:
                    hog.append(bytearray(1 << 20))
            case "garbage":
                os.write(int(sys.argv[2]), b"\x00" * 8 + b"\x05hello")
                time.sleep(600)
            case "a long answer":
                os.write(int(sys.argv[2]), b"\xff" * 9)
                time.sleep(600)
            case "a thread that ends":
                ended = threading.Thread(target=[].pop, name="own-7")
                ended.start()
                ended.join()
            case "echo":
                return ExportResult(rejected_points=len(push.payload.data), message=repr(push)[:200])
            case "descriptors":
                return ExportResult(message=" ".join(sorted(os.listdir("/proc/self/fd"))))  # noqa: PTH208
            case "dumpable":
                core_bytes = resource.getrlimit(resource.RLIMIT_CORE)[0]
                return ExportResult(message=f"{dumps.allowed()} {core_bytes}")
            case "environment":
                return ExportResult(
                    message=subprocess.check_output(["sh", "-c", "echo $LEFT_ALONE"], text=True)
                )
            case _:
                self._raise(what)
        return None

    def _raise(self, what: str) -> None:
        token = "" if self._settings.token is None else self._settings.token.get_secret_value()
        match what:
            case "retryable":
                raise RetryableError(f"away, {token}", retry_after_s=7.5)
            case "permanent":
                raise PermanentError("never", rejected_points=3)
            case "refused":
                raise BatchRefusedError("too much", rejected_points=2)
            case "unclear":
                raise UnclearError("what now")
            case "crash":
                raise LookupError(f"no {token}")
            case "system exit":
                sys.exit(4)
            case "wrong type":
                raise RetryableError("away", retry_after_s="soon")  # type: ignore[arg-type]

    def _write(self, line: str) -> None:
        with self._settings.journal.open("a") as journal:
            journal.write(f"{line}\n")


class Single(Misbehaving):
    """Likewise, one push at a time."""

    max_batch_items = 1

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> ExportResult | None:
        return self._do(context.client_id, Push(context=context, payload=payload))

    def export_batch(self, pushes: Sequence[Push]) -> NoReturn:
        raise AssertionError("it takes one push at a time")
