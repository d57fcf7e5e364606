"""Accepts OTLP metrics from a client, whichever way they came.

Owns what all metrics go through: the limits on bytes, the codec, the OTLP checks, the steps, the
series budgets, the labels and the push id. It knows no request: the caller decides whether the
client may push now, and what it is answered.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import is_
from typing import Final

from receiver.plugin import Push
from receiver.telemetry.compression import CODEC_NAMES, CODECS, inflate
from receiver.telemetry.control.limits import LimitName, Limits
from receiver.telemetry.control.offenders import Offenders
from receiver.telemetry.control.series import SeriesBudgets
from receiver.telemetry.control.series_history import SeriesHistory
from receiver.telemetry.errors import PushError, TooLargeError, UnknownCodecError
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.labels import Labels, identity_labels
from receiver.telemetry.otlp import LabelledMetrics, label_metrics
from receiver.telemetry.outcomes import PushOutcome, refused
from receiver.telemetry.owners import Owners
from receiver.telemetry.push import build_push, content_id, empty_id
from receiver.telemetry.rules import Rules
from receiver.telemetry.steps.metrics import SeriesBound
from receiver.telemetry.steps.wanted import Wanted
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse

_EMPTY: Final = b""
_UNCOMPRESSED: Final = CODECS["none"]


_ACCEPTED: Final = PushTelemetryResponse(error_code=ErrorCode.NONE)


class Intake:
    """Turns the metrics that clients pushed into labelled pushes. Not thread-safe.

    Args:
        rules: Bounds, steps and folding.
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
        self.owners = Owners()
        self.replace_rules(rules)

    def replace_rules(self, rules: Rules) -> None:
        """Replace the settings, the steps and the folding."""
        self._rules = rules
        self._folding = rules.folding
        self._steps = rules.steps
        self._settings = rules.settings

    def principal_label(self, principal: str) -> str | None:
        """Return a principal as privacy rules let it be shown; None: not at all."""
        return self._steps.privacy.principal_label(principal)

    def topic_value(self, topic: str) -> str | None:
        """Return a topic as privacy rules let it be shown; None: not at all."""
        return self._steps.privacy.topic_value(topic)

    def accept(
        self,
        instance: ClientInstance,
        request: PushTelemetryRequest,
        *,
        received_at_ns: int,
        now: float,
        request_version: int | None = None,
        correlation_id: int | None = None,
        wanted: Wanted | None = None,
        empty_push_id: str | None = None,
        checked_by_broker: bool = False,
    ) -> PushOutcome:
        """Accept or refuse metrics of a client instance. No client input raises.

        An accepted push is counted in the instance; a refused one in the limits.

        Args:
            request: Has the metrics, which are not used after the call.
            received_at_ns: When they arrived, in nanoseconds since the epoch.
            now: Monotonic seconds.
            request_version: The version of the client's request; None if only a broker knows it.
            correlation_id: The correlation id of the client's request.
            wanted: Metrics whose names have none of these prefixes are dropped.
            empty_push_id: The push id of a push without data points; None: a new one for each.
            checked_by_broker: Whether a broker has checked codec and size.
        """
        identity = instance.identity
        exceeded = self._limits.over(LimitName.REJECTED_BYTES, identity, now) or self._limits.over(
            LimitName.ACCEPTED_BYTES, identity, now
        )
        if exceeded is not None:
            return refused(identity, request, exceeded)
        size = len(request.metrics or _EMPTY)
        inflated = _EMPTY
        labelled = LabelledMetrics()
        labels = self._labels(instance)
        block = identity.peers.block
        admission = self._history.admission(identity, instance.id, now)
        try:
            inflated = self._inflate(request, None if checked_by_broker else instance.treatment.compression)
            if inflated:
                labelled = label_metrics(
                    inflated,
                    instance.label_bytes(labels),
                    max_entries=self._settings.max_entries,
                    wanted=wanted,
                    steps=self._steps.for_client(instance.treatment.bad_metrics),
                    bound=SeriesBound(
                        max_series=self._series.allowed(instance.id, identity.principal, block),
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
            return refused(identity, request, problem, len(inflated))
        self._offenders.record_push(instance.id, len(inflated), now, too_large=False)
        instance.accept_push(now, terminating=request.terminating)
        if labelled.resource is not None:
            instance.read_resource(labelled.resource)
        self._series.record_push(
            instance.id,
            principal=identity.principal,
            client_id=self._folding.fold(identity.client_id),
            block=block,
            series=labelled.series,
            overflowed=labelled.overflowed,
            now=now,
        )
        if labelled.data:
            self._limits.use(LimitName.ACCEPTED_BYTES, identity, len(labelled.data), now)
        if labelled.series or labelled.overflowed:
            push_id = content_id(instance.id, inflated, terminating=request.terminating)
        else:
            push_id = empty_push_id or empty_id(
                instance.id, identity.broker.id, received_at_ns, instance.pushes_accepted
            )
        push = build_push(
            labelled.data,
            push_id=push_id,
            terminating=request.terminating,
            sequence=instance.pushes_accepted,
            instance=instance,
            labels=labels,
            received_at_ns=received_at_ns,
            request_version=request_version,
            correlation_id=correlation_id,
        )
        return PushOutcome(
            response=_ACCEPTED,
            identity=identity,
            client_instance_id=request.client_instance_id,
            push=push,
            wire_bytes=size,
            inflated_bytes=len(inflated),
            metrics=labelled,
            new_series_over=admission.exceeded,
        )

    def departed(self, instance: ClientInstance, since_ns: int) -> Push:
        """Return what tells plugins that a client's connection ended: push number 0."""
        return build_push(
            _EMPTY,
            push_id=empty_id(instance.id, instance.identity.broker.id, since_ns, 0),
            terminating=False,
            sequence=0,
            instance=instance,
            labels=self._labels(instance),
            received_at_ns=since_ns,
        )

    def _inflate(self, request: PushTelemetryRequest, accepted: Collection[int] | None) -> bytes:
        """Return the metrics; ``accepted`` codecs are None if a broker has checked."""
        codec, metrics = request.compression_type, request.metrics
        if codec not in CODEC_NAMES:
            raise UnknownCodecError(f"compression type {codec} is unknown")
        # An empty push is valid with any known codec. So is a push that inflates to nothing,
        # because Java clients compress that too.
        if not metrics:
            return _EMPTY
        if accepted is not None:
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

        They are those of the push before it, unless what they are made of has changed since.
        """
        identity, known, revealed = instance.identity, instance.labelled, instance.revealed
        made_of = (identity, self._rules, self.owners, revealed)
        if known is not None and all(map(is_, known[0], made_of)):
            return known[1]
        labels = identity_labels(identity, self.owners.team_of(identity, revealed))
        client_id = self._folding.fold(identity.client_id)
        if client_id != identity.client_id:
            labels = labels._replace(client_id=client_id)
        labels = self._steps.privacy.labels(labels)
        instance.labelled = made_of, labels
        return labels
