"""The prometheus plugin: serves scrapes and writes samples.

It keeps the order: state before samples, and samples before staleness markers. Between pushes it
advances the pushes' clock.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import ClassVar

from plugins._shared.cumulative import ExportCache
from plugins.prometheus.config import PrometheusConfig
from plugins.prometheus.exposition import exposition
from plugins.prometheus.messages import Sample
from plugins.prometheus.remote_write import RemoteWriter
from plugins.prometheus.scrape import PluginScrapeServer
from plugins.prometheus.table import PushSamples, SeriesTable
from receiver.plugin import (
    BatchRefusedError,
    ClientTelemetryReceiver,
    ExportError,
    ExportResult,
    PluginConfig,
    Push,
    RetryableError,
    UnclearError,
)
from receiver.plugin.breaker import requested_delay_s
from spark_streaming.scraping.web import Web
from spark_streaming.threads import start_thread

#: Interval between checks for silent clients while there are no pushes.
_CHECK_EVERY_S = 5.0
#: Bound on the staleness markers of a request.
_MAX_SAMPLES = 5_000
#: Bound on the bytes of a request. Version 1.0 repeats the labels for each sample.
_MAX_REQUEST_BYTES = 4 * 1024 * 1024
#: Bytes of a number's sample without its labels, at most.
_SAMPLE_BYTES = 64
#: Staleness markers that wait for the destination may hold ``max_bytes`` divided by this.
_ENDS_SHARE = 8
#: Bound on consecutive requests with staleness markers, because pushes wait for them.
_MAX_REQUESTS = 50


class PrometheusReceiver(ClientTelemetryReceiver):
    """Serves series to scrapes, and sends them by remote write."""

    Config: ClassVar[type[PrometheusConfig]] = PrometheusConfig
    #: Gives requests of some thousand samples, like Prometheus's own.
    max_batch_items = 50

    def __init__(self, config: PrometheusConfig) -> None:
        super().__init__(config)
        self._config = config
        self._address, self._hosts = config.address, config.allowed_hosts
        self._table = SeriesTable(config)
        self._cache: ExportCache[PushSamples] = ExportCache()
        self._max_ends, self._max_end_bytes = config.max_series, config.max_bytes // _ENDS_SHARE
        self._writer = None if config.remote_write is None else RemoteWriter(config.remote_write)
        self._writing = threading.Lock()
        # Staleness markers to send. ``_ends_lock`` is held only briefly.
        self._ends: deque[Sample] = deque()
        self._end_bytes = 0
        self._ends_lock = threading.Lock()
        # Monotonic time before which no markers are sent, because the destination asked for a
        # delay.
        self._ends_after = 0.0
        self._server: PluginScrapeServer | None = None
        self._stopping = threading.Event()
        self._ends_thread: threading.Thread | None = None
        # Receive time of the last push, and monotonic time when its export succeeded. None while an
        # export runs or is failing.
        self._idle: tuple[int, float] | None = None

    def start(self) -> None:
        """Listen for scrapes. Remote write connects with its first request."""
        if self._writer is not None:
            self._writer.open()
        if self._address is not None and self._server is None:
            self._server = PluginScrapeServer(
                self._address, self._exposition, self._hosts, Web(self._config.web_config_file)
            )
        if self._writer is not None and self._ends_thread is None:
            self._stopping.clear()
            self._ends_thread = start_thread("prometheus-ends", self._send_ends)

    def export_batch(self, pushes: Sequence[Push]) -> ExportResult | None:
        """Add pushes to the series table, and write their samples.

        A push changes the table once. A retry only sends its samples again.

        Returns:
            None, or the number of points dropped here and of samples that the destination rejected.
        """
        with self._writing:
            # From here on, no marker may be sent before the samples of these pushes.
            self._idle = None
        results = self._cache.results(pushes, self._table.add)
        result = self._write(results)
        self._cache.discard(pushes)
        self._idle = (max(push.context.received_at_ns for push in pushes), time.monotonic())
        return _with_left_out(results, result)

    def use_config(self, config: PluginConfig) -> None:
        """Connect remote write anew with changed headers and certificates.

        The series stay.
        """
        assert isinstance(config, PrometheusConfig)  # noqa: S101 - the host checked it as Config
        writer = None if config.remote_write is None else RemoteWriter(config.remote_write)
        if writer is not None:
            writer.open()
        with self._writing:
            before, self._writer = self._writer, writer
            self.config = self._config = config
        if before is not None:
            before.close()

    def stop(self) -> None:
        """Stop without staleness markers, because the clients continue."""
        self._stopping.set()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._ends_thread is not None:
            self._ends_thread.join()
            self._ends_thread = None
        if self._writer is not None:
            self._writer.close()

    def check_destination(self, timeout_s: float) -> str:
        """Send the remote write destination a request without samples.

        Nobody else is connected to.

        Raises:
            RetryableError: The destination does not answer, or refuses the request, for example its
                token.
        """
        remote = self._config.remote_write
        if remote is None:
            return f"is scraped at {self._config.bind or 'no address'}"
        writer = RemoteWriter(remote.model_copy(update={"timeout_ms": int(timeout_s * 1000)}))
        try:
            writer.open()
            writer.write([])
        except OSError as error:
            raise RetryableError(f"{remote.url}: {error}") from None
        except ExportError as error:
            error.reason = f"{remote.url}: {error.reason}"
            raise
        finally:
            writer.close()
        return f"{remote.url}: takes remote write {remote.version}"

    def _write(self, pushes: Sequence[PushSamples]) -> ExportResult | None:
        writer = self._writer
        if writer is None:
            return None
        samples = [sample for push in pushes for sample in push.samples]
        with self._writing:
            results = [
                result for request in _requests(samples) if (result := writer.write(request)) is not None
            ]
            self._add_ends([end for push in pushes for end in push.ends])
            self._write_ends(writer)
        if not samples:
            return ExportResult(sent=False)
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
                    # Prometheus itself ends these series after five minutes.
                    return
                self._ends.append(end)
                self._end_bytes += size

    def _write_ends(self, writer: RemoteWriter) -> None:
        """Send staleness markers in requests of their own, so that no push fails.

        A refused request is halved until the rest succeeds. A series whose marker is dropped ends
        after Prometheus's five minutes.
        """
        size = _MAX_SAMPLES
        for _ in range(_MAX_REQUESTS):
            ends = next(_requests(list(islice(self._ends, size))), None)
            if ends is None or time.monotonic() < self._ends_after:
                return
            try:
                writer.write(ends)
            except RetryableError as error:
                self._ends_after = time.monotonic() + (requested_delay_s(error.retry_after_s) or 0.0)
                return
            except UnclearError:
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

    def _exposition(self, openmetrics: bool) -> Iterator[bytes]:  # noqa: FBT001 # the server calls it so
        self._expire()
        return exposition(self._table, openmetrics=openmetrics)

    def _expire(self) -> None:
        """End silent series while there are no pushes.

        The clock continues from the last push's receive time. While an export runs or is failing,
        newer pushes may wait in the queue, so no client counts as silent.
        """
        idle = self._idle
        if idle is not None:
            received_ns, idle_since = idle
            self._add_ends(self._table.expire(received_ns + int((time.monotonic() - idle_since) * 1e9)))

    def _send_ends(self) -> None:
        while not self._stopping.wait(_CHECK_EVERY_S):
            self._expire()
            with self._writing:
                if self._idle is not None and self._writer is not None:
                    self._write_ends(self._writer)


def _with_left_out(pushes: Sequence[PushSamples], answer: ExportResult | None) -> ExportResult | None:
    """Add what the table left out to the destination's answer, each reason once."""
    left_out: Counter[str] = Counter()
    for push in pushes:
        left_out.update(push.reasons)
    parts = []
    if left_out:
        counts = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        parts.append(f"points left out: {counts}")
    if evicted := sum(push.evicted for push in pushes):
        parts.append(f"{evicted} series ended for lack of room (max_series, max_bytes)")
    if not parts:
        return answer
    answer = answer or ExportResult()
    return replace(
        answer,
        rejected_points=left_out.total() + answer.rejected_points,
        message="; ".join([*parts, *filter(None, [answer.message])]),
    )


def _requests(samples: Sequence[Sample]) -> Iterator[Sequence[Sample]]:
    """Split samples into requests of a bounded size, in their order."""
    begin = size = 0
    for index, sample in enumerate(samples):
        sample_size = _sample_bytes(sample)
        if index > begin and size + sample_size > _MAX_REQUEST_BYTES:
            yield samples[begin:index]
            begin, size = index, 0
        size += sample_size
    if begin < len(samples):
        yield samples[begin:]


def _sample_bytes(sample: Sample) -> int:
    (_, labels, _, description), encoded = sample
    return len(labels.text) + len(description) + len(encoded) + _SAMPLE_BYTES
