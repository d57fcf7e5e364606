"""The interface of an OTLP transport."""

from __future__ import annotations

from typing import Protocol

from receiver.plugin import ExportResult

__all__ = ["Transport"]


class Transport(Protocol):
    """A connection to a destination. Not thread-safe."""

    def open(self) -> None:
        """Create the client or channel. The first export connects it.

        Raises:
            OSError: A TLS file is missing or invalid.
        """

    def export(self, body: bytes) -> ExportResult | None:
        """Send an ``ExportMetricsServiceRequest``.

        Returns:
            None for a full success, else what the destination rejected.

        Raises:
            RetryableError: The same request may succeed later.
            BatchRefusedError: The same request will always fail. A part of it may succeed.
            PermanentError: The same request will always fail.
        """

    def close(self) -> None:
        """Close what :meth:`open` opened."""
