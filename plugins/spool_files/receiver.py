"""The spool_files plugin itself: what the contract calls, on top of the writer of the folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from plugins.spool_files.config import SpoolFilesConfig
from receiver.plugin import (
    ClientTelemetryContext,
    ClientTelemetryPayload,
    ClientTelemetryReceiver,
    ExportResult,
    Push,
)

if TYPE_CHECKING:
    from plugins.spool_files.writer import FolderWriter

__all__ = ["SpoolFilesReceiver"]


class SpoolFilesReceiver(ClientTelemetryReceiver):
    """Writes pushes into a folder of Parquet files; docs/spool-files.md is its format.

    Args:
        config: The operator's settings.

    Raises:
        RuntimeError: pyarrow is not installed.
    """

    Config: ClassVar[type[SpoolFilesConfig]] = SpoolFilesConfig
    #: One batch is one write to the disk, and waits for it.
    max_batch_items = 10_000
    config: SpoolFilesConfig

    def __init__(self, config: SpoolFilesConfig) -> None:
        super().__init__(config)
        try:
            from plugins.spool_files.writer import FolderWriter
        except ModuleNotFoundError as error:
            raise RuntimeError(
                f"{error.name} is missing: pip install 'kafka-client-telemetry[spool-files]'"
            ) from None
        self._new_writer = FolderWriter
        self._writer: FolderWriter | None = None

    def start(self) -> None:
        """Make the folder ready, and take over what an earlier run accepted and didn't publish.

        Raises:
            OSError: The folder cannot be written to.
        """
        writer = self._new_writer(self.config)
        try:
            writer.open()
        except BaseException:
            writer.close()
            raise
        self._writer = writer

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> ExportResult | None:
        """Accept one push; see :meth:`export_batch`."""
        return self.export_batch([Push(context=context, payload=payload)])

    def export_batch(self, pushes: Sequence[Push]) -> ExportResult | None:
        """Accept pushes: they are on disk when this returns, and in a published file soon.

        Returns:
            None, or what the operator should know of: torn journals, files removed at the bound,
            files that cannot be published.

        Raises:
            RetryableError: The disk is full, read-only or broken; none of the pushes is accepted.
        """
        if self._writer is None:
            raise RuntimeError("export before start")
        self._writer.append(pushes)
        news = self._writer.news()
        return ExportResult(message=news) if news else None

    def stop(self) -> None:
        """Publish what is accepted."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
