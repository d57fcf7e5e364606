"""The spool_files plugin: implements the plugin contract with a folder writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from plugins.spool_files.config import SpoolFilesConfig
from plugins.spool_files.disk import folder_problem
from receiver.plugin import (
    ClientTelemetryReceiver,
    ExportResult,
    Push,
    RetryableError,
)

if TYPE_CHECKING:
    from plugins.spool_files.writer import FolderWriter


class SpoolFilesReceiver(ClientTelemetryReceiver):
    """Writes pushes into a folder of Parquet files (plugins/spool_files/FORMAT.md)."""

    Config: ClassVar[type[SpoolFilesConfig]] = SpoolFilesConfig
    #: A batch is one write and one fsync.
    max_batch_items = 10_000
    config: SpoolFilesConfig

    def __init__(self, config: SpoolFilesConfig) -> None:
        super().__init__(config)
        try:
            from plugins.spool_files.writer import FolderWriter
        except ModuleNotFoundError as error:
            raise RuntimeError(
                f"{error.name or error} is missing: pip install 'kafka-client-telemetry[spool-files]'"
            ) from None
        self._new_writer = FolderWriter
        self._writer: FolderWriter | None = None

    def start(self) -> None:
        """Open the folder, and claim journals that an earlier run did not publish."""
        writer = self._new_writer(self.config)
        try:
            writer.open()
        except BaseException:
            writer.close()
            raise
        self._writer = writer

    def export_batch(self, pushes: Sequence[Push]) -> ExportResult | None:
        """Write pushes durably; they are published soon after.

        Returns:
            None, or a message for the operator: torn journals, files removed at the bound, files
            that cannot be published.

        Raises:
            RetryableError: The disk is full, read-only or broken. No push is accepted.
        """
        if self._writer is None:
            raise RuntimeError("export before start")
        self._writer.append(pushes)
        message = self._writer.drain_messages()
        return ExportResult(message=message) if message else None

    def check_destination(self, timeout_s: float) -> str:
        """Look at the folder, which is not created.

        Raises:
            RetryableError: This user can't write to it, or the disk is full.
        """
        path = self.config.path
        problem = folder_problem(path)
        if problem is not None:
            raise RetryableError(f"{path}: {problem}")
        return f"{path}: can be written"

    def stop(self) -> None:
        """Publish all accepted pushes."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
