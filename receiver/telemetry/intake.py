"""Accepts OTLP metrics from a client, whichever way they came.

Owns what all metrics go through: the limits on bytes, the codec, the OTLP checks, the steps, the
series budgets, the labels and the push id. It knows no request: the caller decides whether the
client may push now, and what it is answered.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from receiver.plugin import Push
from receiver.telemetry.compression import CODEC_NAMES, CODECS, inflate
from receiver.telemetry.control.limits import Exceeded, LimitName, Limits
from receiver.telemetry.control.offenders import Offenders
from receiver.telemetry.control.series import SeriesBudgets
from receiver.telemetry.control.series_history import SeriesHistory
from receiver.telemetry.errors import PushError, TooLargeError, UnknownCodecError
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.labels import Labels, identity_labels
from receiver.telemetry.otlp import LabelledMetrics, label_metrics
from receiver.telemetry.push import build_push, content_id, empty_id
from receiver.telemetry.rules import Rules
from receiver.telemetry.steps.metrics import SeriesBound
from receiver.telemetry.steps.wanted import Wanted
from receiver.wire.headers import RequestHeader

_EMPTY: Final = b""
_UNCOMPRESSED: Final = CODECS["none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Metrics that a client pushed."""

    metrics: bytes | memoryview  # a MetricsData, in the codec; not used after the call
    received_at_ns: int  # in nanoseconds since the epoch
    codec: int = _UNCOMPRESSED  # KIP-714's compression type
    terminating: bool = False
    empty_push_id: str | None = None  # of a push without data points; None: a new one for each
    checked_by_broker: bool = False  # codec and size in the request; there is no compressed size
    request: RequestHeader | None = None  # of the client's PushTelemetry request, if it is known
    interval_ms: int | None = None  # the client's push interval, where another party decided it


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The result of an arrival: a push for plugins, or the reason for a refusal."""

    push: Push | None = None  # None when it was refused
    refusal: PushError | Exceeded | None = None
    inflated_bytes: int = 0  # 0 when they were not inflated
    metrics: LabelledMetrics = field(default_factory=LabelledMetrics)
    new_series_over: Exceeded | None = None  # the limit that new series of an accepted push are over


class Intake:
    """Turns arrivals into labelled pushes. Not thread-safe.

    Args:
        rules: Bounds, steps and folding.
        limits: The limits of each peer.
        series: The series budgets.
        history: The limits on new series.
        offenders: Records the clients that push too much.
    """

    def __init__(
        self,
        rules: Rules,
        *,
        limits: Limits,
        series: SeriesBudgets,
        history: SeriesHistory,
        offenders: Offenders,
    ) -> None:
        self._limits = limits
        self._series = series
        self._history = history
        self._offenders = offenders
        self.replace_rules(rules)

    def replace_rules(self, rules: Rules) -> None:
        """Replace the settings, the steps and the folding."""
        self._rules = rules
        self._folding = rules.folding
        self._steps = rules.steps
        self._settings = rules.settings

    def accept(
        self, instance: ClientInstance, arrival: Arrival, *, wanted: Wanted | None = None, now: float
    ) -> Taken:
        """Accept or refuse metrics of a client instance. No client input raises.

        An accepted push is counted in the instance; a refused one in the limits. Metrics whose
        names have none of the ``wanted`` prefixes are dropped. ``now`` is monotonic seconds.
        """
        identity = instance.identity
        exceeded = self._limits.over(LimitName.REJECTED_BYTES, identity, now) or self._limits.over(
            LimitName.ACCEPTED_BYTES, identity, now
        )
        if exceeded is not None:
            return Taken(refusal=exceeded)
        size = len(arrival.metrics)
        inflated = _EMPTY
        labelled = LabelledMetrics()
        labels = self._labels(instance)
        site = identity.peers.site
        admission = self._history.admission(identity, instance.id, now)
        try:
            inflated = self._inflate(arrival, instance.treatment.compression)
            if inflated:
                labelled = label_metrics(
                    inflated,
                    instance.label_bytes(labels),
                    max_entries=self._settings.max_entries,
                    wanted=wanted,
                    steps=self._steps.for_client(instance.treatment.bad_metrics),
                    bound=SeriesBound(
                        max_series=self._series.allowed(instance.id, identity.principal, site),
                        admit=admission,
                    ),
                )
        except PushError as problem:
            # A few bytes may have cost much work.
            inflated_bytes = max(len(inflated), problem.inflated_bytes)
            self._limits.use(LimitName.REJECTED_BYTES, identity, max(size, inflated_bytes), now)
            self._offenders.record_push(
                instance.id, inflated_bytes, now, too_large=isinstance(problem, TooLargeError)
            )
            return Taken(refusal=problem, inflated_bytes=len(inflated))
        self._offenders.record_push(instance.id, len(inflated), now, too_large=False)
        instance.accept_push(now, arrival.received_at_ns, terminating=arrival.terminating)
        if labelled.resource is not None:
            instance.read_resource(labelled.resource)
        self._series.record_push(
            instance.id,
            principal=identity.principal,
            client_id=self._folding.fold(identity.client_id),
            site=site,
            series=labelled.series,
            overflowed=labelled.overflowed,
            now=now,
        )
        if labelled.data:
            self._limits.use(LimitName.ACCEPTED_BYTES, identity, len(labelled.data), now)
        push = build_push(
            labelled.data,
            push_id=self._push_id(instance, arrival, inflated, labelled),
            terminating=arrival.terminating,
            instance=instance,
            labels=labels,
            received_at_ns=arrival.received_at_ns,
            request=arrival.request,
        )
        return Taken(
            push=push,
            inflated_bytes=len(inflated),
            metrics=labelled,
            new_series_over=admission.exceeded,
        )

    def _inflate(self, arrival: Arrival, accepted: Collection[int]) -> bytes:
        codec, metrics = arrival.codec, arrival.metrics
        if codec not in CODEC_NAMES:
            raise UnknownCodecError(f"compression type {codec} is unknown")
        # An empty push is valid with any known codec. So is a push that inflates to nothing,
        # because Java clients compress that too.
        if not metrics:
            return _EMPTY
        if not arrival.checked_by_broker:
            if codec != _UNCOMPRESSED and codec not in accepted:
                raise UnknownCodecError(
                    f"compression type {codec} ({CODEC_NAMES[codec]}) was not offered to this client"
                )
            max_bytes = self._settings.max_bytes
            if len(metrics) > max_bytes:
                raise TooLargeError(f"{len(metrics)} bytes are more than {max_bytes} allowed")
        return inflate(codec, metrics, self._settings.max_inflated_bytes)

    def _labels(self, instance: ClientInstance) -> Labels:
        """Return the labels of a push, folded and with the privacy rules applied.

        They are those of the push before it, unless the identity or a rule has changed since.
        """
        identity, known = instance.identity, instance.labelled
        if known is not None and known[0] is identity and known[1] is self._rules:
            return known[2]
        labels = identity_labels(identity)
        client_id = self._folding.fold(identity.client_id)
        if client_id != identity.client_id:
            labels = labels._replace(client_id=client_id)
        labels = self._steps.privacy.labels(labels)
        instance.labelled = identity, self._rules, labels
        return labels

    def _push_id(
        self, instance: ClientInstance, arrival: Arrival, inflated: bytes, labelled: LabelledMetrics
    ) -> str:
        if labelled.series or labelled.overflowed:
            return content_id(instance.id, inflated, terminating=arrival.terminating)
        if arrival.empty_push_id is not None:
            return arrival.empty_push_id
        broker_id = instance.identity.broker.id
        return empty_id(instance.id, broker_id, arrival.received_at_ns, instance.pushes_accepted)
