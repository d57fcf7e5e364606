"""Composes the supervisor with the processes that it runs."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

from receiver import log_once
from receiver.core import process as core_process
from receiver.gateway import process as relay_process
from receiver.host.discovery import HostedPlugin
from receiver.log import configure as configure_log
from receiver.process_memory import tune_garbage_collection
from receiver.settings.load import load, sourced
from receiver.settings.model import ReceiverSettings
from receiver.supervisor.cgroups import memory_limit
from receiver.supervisor.supervisor import Supervisor
from spark_streaming import log_writer

#: What an idle receiver takes of a container's memory with two relays: 112 MiB measured.
LEAST_MEMORY_BYTES: Final = 120 << 20

_log = structlog.get_logger("receiver.supervisor")


def run(
    settings: ReceiverSettings,
    config_path: Path,
    plugins: Sequence[HostedPlugin],
    *,
    take_over: bool = False,
) -> int:
    """Run the receiver until SIGTERM or SIGINT.

    Args:
        config_path: The file of the settings, which SIGHUP reads again.
        plugins: Its plugins, constructed and not started. The first core has them. A later one
            constructs its own, because secrets may have changed.
        take_over: Whether to take over the running receiver at ``gateway.control``.

    Returns:
        The exit status: 0 after a drain, 1 if the receiver cannot start, 2 if the configuration is
        wrong.
    """
    log_writer.install()
    log_once.install()
    configure_log(settings.log)
    warn_of_little_memory(memory_limit())
    _raise_file_limit()
    # The processes share the memory of what is imported, as long as nothing writes to it.
    tune_garbage_collection()
    with _usage_file() as usage_file:
        supervisor = Supervisor(
            settings,
            load=lambda: load(config_path, os.environ),
            sourced=lambda error: sourced(error, config_path, os.environ),
            run_core=lambda channel, setup: core_process.run(
                channel, setup, plugins if setup.first else (), usage_file
            ),
            run_relay=relay_process.run,
            take_over=take_over,
        )
        return supervisor.run()


def warn_of_little_memory(limit: int | None) -> None:
    """Warn of a memory limit under which the kernel kills an idle receiver.

    Args:
        limit: Bytes; None without one.
    """
    if limit is not None and limit < LEAST_MEMORY_BYTES:
        _log.warning(
            "the memory limit is less than an idle receiver takes, so the kernel will kill it: raise it",
            limit_bytes=limit,
            least_bytes=LEAST_MEMORY_BYTES,
        )


@contextmanager
def _usage_file() -> Iterator[Path | None]:
    """Yield a file for usage, and remove it; None: no folder is writable."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="kafka-telemetry-", ignore_cleanup_errors=True)
    except OSError:
        yield None
        return
    with folder as name:
        yield Path(name, "usage.db")


def _raise_file_limit() -> None:
    """Raise the limit of open files, because each connection uses two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
