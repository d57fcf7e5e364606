"""The prometheus plugin itself: from pushes to series, and from there to scrapes and remote write.

Owns the order of things (state before samples, samples before the ends of series) and what time it is
while no push says so.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar

from plugins._shared.cumulative import ExportCache
from plugins.prometheus.config import PrometheusConfig
from plugins.prometheus.exposition import exposition
from plugins.prometheus.messages import Sample
from plugins.prometheus.remote_write import RemoteWriter
from plugins.prometheus.scrape import ScrapeServer
from plugins.prometheus.table import PushSamples, SeriesTable
from receiver.plugin import (
    BatchRefusedError,
    ClientTelemetryContext,
    ClientTelemetryPayload,
    ClientTelemetryReceiver,
    ExportError,
    ExportResult,
    Push,
    RetryableError,
)

__all__ = ["PrometheusReceiver"]

#: How often silence is looked for while there are no pushes.
_LOOK_EVERY_S = 5.0
#: How many ends of series one request tells.
_MAX_SAMPLES = 5_000
#: Labels of the samples of one request, in bytes. Version 1.0 repeats them for each sample.
_MAX_REQUEST_BYTES = 4 * 1024 * 1024
#: Bytes of a sample beside its labels, at most for one of a number.
_SAMPLE_BYTES = 64
#: The part of ``max_bytes`` that ends of series may hold while they wait for the destination.
_ENDS_SHARE = 8
#: Requests with ends in a row; pushes wait for them.
_MAX_REQUESTS = 50


class PrometheusReceiver(ClientTelemetryReceiver):
    """Offers series for scraping, and writes them by remote write.

    Args:
        config: The operator's settings.
    """

    Config: ClassVar[type[PrometheusConfig]] = PrometheusConfig
    #: A request of some thousand samples, as Prometheus's own are.
    max_batch_items = 50

    def __init__(self, config: PrometheusConfig) -> None:
        super().__init__(config)
        self._address, self._hosts = config.address, config.allowed_hosts
        self._table = SeriesTable(config)
        self._cache: ExportCache[PushSamples] = ExportCache()
        self._max_ends, self._max_end_bytes = config.max_series, config.max_bytes // _ENDS_SHARE
        self._writer = None if config.remote_write is None else RemoteWriter(config.remote_write)
        self._writing = threading.Lock()
        #: What says that series ended, after samples that are written; ``_ends_lock`` is never held for long.
        self._ends: deque[Sample] = deque()
        self._end_bytes = 0
        self._ends_lock = threading.Lock()
        #: By the monotonic clock; before, the destination wants none.
        self._ends_after = 0.0
        self._server: ScrapeServer | None = None
        self._stopping = threading.Event()
        self._telling: threading.Thread | None = None
        #: When the last push was received, and by the monotonic clock when its export ended well; None while
        #: one is under way or fails.
        self._idle: tuple[int, float] | None = None

    def start(self) -> None:
        """Listen for scrapes; remote write connects with its first request.

        Raises:
            OSError: The address is taken, or a TLS file is missing or wrong.
        """
        if self._writer is not None:
            self._writer.open()
        if self._address is not None and self._server is None:
            self._server = ScrapeServer(self._address, self._exposition, self._hosts)
        if self._writer is not None and self._telling is None:
            self._stopping.clear()
            self._telling = threading.Thread(
                target=self._tell_ends, args=(self._writer,), name="prometheus-ends", daemon=True
            )
            self._telling.start()

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> ExportResult | None:
        """Take one push; see :meth:`export_batch`."""
        return self.export_batch([Push(context=context, payload=payload)])

    def export_batch(self, pushes: Sequence[Push]) -> ExportResult | None:
        """Add pushes to what is scraped, and write their samples.

        A push changes the state once; what is tried again are its samples.

        Returns:
            None, or how many points were left out here, and samples by the destination.

        Raises:
            RetryableError: The destination is slow or away.
            BatchRefusedError: It refuses these samples for what they are.
            PermanentError: It will take none.
        """
        with self._writing:
            # From here on, no end may be written before the samples of these pushes.
            self._idle = None
        results = self._cache.results(pushes, self._table.add)
        result = self._write(results)
        self._cache.discard(pushes)
        self._idle = (max(push.context.received_at_ns for push in pushes), time.monotonic())
        left_out = sum(push.left_out for push in results)
        reasons = [push.reason for push in results if push.reason]
        if result is not None:
            left_out += result.rejected_points
            reasons.append(result.message)
        return ExportResult(rejected_points=left_out, message="; ".join(reasons[:3])) if reasons else None

    def stop(self) -> None:
        """Stop listening and writing. Series are not marked as ended: their clients go on."""
        self._stopping.set()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._telling is not None:
            self._telling.join()
            self._telling = None
        if self._writer is not None:
            self._writer.close()

    def _write(self, pushes: Sequence[PushSamples]) -> ExportResult | None:
        writer = self._writer
        if writer is None:
            return None
        samples = [sample for push in pushes for sample in push.samples]
        with self._writing:
            results = [result for some in _requests(samples) if (result := writer.write(some)) is not None]
            self._add_ends([end for push in pushes for end in push.ends])
            self._write_ends(writer)
        if not results:
            return None
        return ExportResult(
            rejected_points=sum(result.rejected_points for result in results), message=results[0].message
        )

    def _add_ends(self, ends: list[Sample]) -> None:
        with self._ends_lock:
            for end in ends:
                size = _sample_bytes(end)
                if len(self._ends) >= self._max_ends or self._end_bytes + size > self._max_end_bytes:
                    # Prometheus ends these itself after five minutes.
                    return
                self._ends.append(end)
                self._end_bytes += size

    def _write_ends(self, writer: RemoteWriter) -> None:
        """Write what ended, in requests of its own; that fails no push.

        A request that is refused for what is in it is halved until the rest passes. A series whose end nobody
        takes ends after Prometheus's five minutes.
        """
        size = _MAX_SAMPLES
        for _ in range(_MAX_REQUESTS):
            ends = next(_requests(list(islice(self._ends, size))), None)
            if ends is None or time.monotonic() < self._ends_after:
                return
            try:
                writer.write(ends)
            except RetryableError as error:
                self._ends_after = time.monotonic() + (error.retry_after_s or 0.0)
                return
            except BatchRefusedError:
                if len(ends) > 1:
                    size = len(ends) // 2
                    continue
            except ExportError:
                pass
            size = min(2 * size, _MAX_SAMPLES)
            with self._ends_lock:
                for _ in ends:
                    self._end_bytes -= _sample_bytes(self._ends.popleft())

    def _exposition(self, openmetrics: bool) -> Iterator[bytes]:  # noqa: FBT001 # what the server calls
        self._expire()
        return exposition(self._table, openmetrics=openmetrics)

    def _expire(self) -> None:
        """End what is silent, while there are no pushes to tell the time.

        The clock is the pushes' and goes on from the last one. While an export is under way or fails, pushes
        wait that were received meanwhile: then nobody is silent.
        """
        idle = self._idle
        if idle is not None:
            received_ns, since = idle
            self._add_ends(self._table.expire(received_ns + int((time.monotonic() - since) * 1e9)))

    def _tell_ends(self, writer: RemoteWriter) -> None:
        while not self._stopping.wait(_LOOK_EVERY_S):
            self._expire()
            with self._writing:
                if self._idle is not None:
                    self._write_ends(writer)


def _requests(samples: Sequence[Sample]) -> Iterator[Sequence[Sample]]:
    """Split samples into requests of a bounded size, in their order."""
    begin = size = 0
    for index, sample in enumerate(samples):
        more = _sample_bytes(sample)
        if index > begin and size + more > _MAX_REQUEST_BYTES:
            yield samples[begin:index]
            begin, size = index, 0
        size += more
    if begin < len(samples):
        yield samples[begin:]


def _sample_bytes(sample: Sample) -> int:
    (_, labels, _, description), encoded = sample
    return len(labels.text) + len(description) + len(encoded) + _SAMPLE_BYTES
