"""Answers KIP-714's RPCs: GetTelemetrySubscriptions and PushTelemetry.

Owns the order of the checks and the answers. The caller delivers accepted pushes to plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from receiver.plugin.sources import site_of
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.compression import CODEC_NAMES, CODECS, inflate
from receiver.telemetry.control.backpressure import BackPressure
from receiver.telemetry.control.limits import Exceeded, LimitName, Limits
from receiver.telemetry.control.offenders import Offenders
from receiver.telemetry.control.series import SeriesBudgets
from receiver.telemetry.errors import PushError, TooLargeError, UnknownCodecError
from receiver.telemetry.folding import ClientIdFolding
from receiver.telemetry.identity import Broker, ClientIdentity
from receiver.telemetry.instance import ClientInstance, ClientInstances
from receiver.telemetry.labels import Labels, identity_labels
from receiver.telemetry.otlp import LabelledMetrics, label_metrics
from receiver.telemetry.outcomes import PushOutcome, SubscriptionsOutcome
from receiver.telemetry.push import build_push, content_id, empty_id
from receiver.telemetry.quirks import Quirks
from receiver.telemetry.steps.steps import Steps
from receiver.telemetry.subscription import SubscriptionSet, subscription_id
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from receiver.wire.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from receiver.wire.uuid import RESERVED_UUIDS, ZERO_UUID, Uuid, random_uuid

__all__ = ["ClientTelemetry", "PushOutcome", "SubscriptionsOutcome"]

_EMPTY: Final = b""
# The shortest and longest wait of a client that has no subscription yet, in seconds.
_MIN_ASK_AGAIN_S: Final = 1.0
_MAX_ASK_AGAIN_S: Final = 60.0
_UNCOMPRESSED: Final = CODECS["none"]


class ClientTelemetry:
    """Answers the telemetry RPCs and keeps the client instances. Not thread-safe.

    Args:
        settings: Limits, defaults and the operator's quirks.
        broker: The broker behind the sidecar; its cluster id may become known later.
        subscriptions: The operator's subscriptions, until :meth:`replace_subscriptions`.
        limits: The limits of each peer, shared with the gateway and the sessions.
        random_bytes: Returns that many random bytes, as ``os.urandom`` does.
        hash_key: The content of ``telemetry.privacy.key_file``; None when nothing is hashed.

    Raises:
        InvalidValueError: A rule in the settings or the key for hashes is invalid.
    """

    def __init__(
        self,
        *,
        settings: TelemetrySettings,
        broker: Broker,
        subscriptions: SubscriptionSet,
        limits: Limits,
        random_bytes: Callable[[int], bytes],
        hash_key: bytes | None = None,
    ) -> None:
        self._apply_settings(settings, hash_key)
        self._max_bytes = settings.max_bytes
        self._broker = broker
        self.subscriptions = subscriptions
        self._limits = limits
        self._random_bytes = random_bytes
        self.series = SeriesBudgets(settings.series)
        self.backpressure = BackPressure(settings.backpressure)
        self.offenders = Offenders(settings.backpressure)
        self.instances = ClientInstances(settings.max_instances, self._on_forget)

    def replace_subscriptions(self, subscriptions: SubscriptionSet) -> None:
        """Replace all subscriptions; they take effect with each client's next request."""
        self.subscriptions = subscriptions

    @staticmethod
    def check_settings(settings: TelemetrySettings, hash_key: bytes | None) -> None:
        """Check settings for :meth:`replace_settings`, which raises the same InvalidValueError."""
        Quirks(settings.quirks, compression=settings.compression)
        Steps(settings.normalization, settings.privacy, hash_key)

    def replace_settings(self, settings: TelemetrySettings, hash_key: bytes | None = None) -> None:
        """Replace the settings; they take effect with each client's next request.

        Raises:
            InvalidValueError: A rule or the key for hashes is invalid; nothing has changed.
        """
        self._apply_settings(settings, hash_key)
        self._max_bytes = settings.max_bytes
        self.instances.resize(settings.max_instances)
        self.series.replace_settings(settings.series)
        self.backpressure.replace_settings(settings.backpressure)
        self.offenders.replace_settings(settings.backpressure)
        # A new object, though equal, so that every instance is matched again.
        self.subscriptions = SubscriptionSet(self.subscriptions.subscriptions)

    def get_telemetry_subscriptions(
        self, identity: ClientIdentity, request: GetTelemetrySubscriptionsRequest, *, now: float
    ) -> SubscriptionsOutcome:
        """Answer which metrics a client is to push (KIP-714, "GetTelemetrySubscriptions").

        The throttle time of the answer is always 0, because clients mute their connection by it.
        ``now`` is monotonic seconds.
        """
        instance, created = self._find_or_create(request.client_instance_id, identity, now)
        if isinstance(instance, Exceeded):
            return self.ask_again(identity, request, instance)
        identity = instance.identity
        error = instance.check_get(now)
        if error is not ErrorCode.NONE:
            response = GetTelemetrySubscriptionsResponse(error_code=error)
        else:
            # The client's identity may have changed since its instance was matched. Only this
            # answer can carry a new subscription id; a push could only be refused.
            if identity != instance.matched:
                self._assign(instance, identity)
                self.instances.keep(instance, identity, now)
            response = GetTelemetrySubscriptionsResponse(
                client_instance_id=instance.id,
                subscription_id=instance.subscription_id,
                accepted_compression_types=instance.treatment.compression,
                push_interval_ms=instance.push_interval_ms,
                telemetry_max_bytes=self._max_bytes,
                delta_temporality=self._settings.delta_temporality,
                requested_metrics=instance.requested_metrics,
            )
        return SubscriptionsOutcome(
            response=response, identity=identity, client_instance_id=instance.id, created=created
        )

    def ask_again(
        self, identity: ClientIdentity, request: GetTelemetrySubscriptionsRequest, exceeded: Exceeded
    ) -> SubscriptionsOutcome:
        """Tell a client whose peer is over a limit to ask again soon, and keep no instance.

        The answer requests no metrics, so the client repeats its request after the push interval.
        After THROTTLING_QUOTA_EXCEEDED, a Java client without a subscription waits for five
        minutes. The interval is the time until the peer is below the limit, 1 to 60 s, with up to
        100 % of jitter, so that clients do not come back at once.
        """
        client_instance_id = request.client_instance_id
        if client_instance_id == ZERO_UUID:
            client_instance_id = self._new_id()
        wait_ms = 1000 * min(max(exceeded.retry_after_s, _MIN_ASK_AGAIN_S), _MAX_ASK_AGAIN_S)
        jitter = int.from_bytes(self._random_bytes(2), "big") / 65_536
        interval_ms = int(wait_ms * (1 + jitter))
        return SubscriptionsOutcome(
            response=GetTelemetrySubscriptionsResponse(
                client_instance_id=client_instance_id,
                subscription_id=subscription_id(client_instance_id, (), interval_ms),
                push_interval_ms=interval_ms,
                telemetry_max_bytes=self._max_bytes,
                delta_temporality=self._settings.delta_temporality,
            ),
            identity=identity,
            client_instance_id=client_instance_id,
            created=False,
            exceeded=exceeded,
        )

    def push_telemetry(
        self, identity: ClientIdentity, request: PushTelemetryRequest, *, now: float, received_at_ns: int
    ) -> PushOutcome:
        """Accept or refuse a push (KIP-714, "PushTelemetry"). No client input raises.

        The request's metrics are not used after this call. ``now`` is monotonic seconds,
        ``received_at_ns`` nanoseconds since the epoch.
        """
        client_instance_id = request.client_instance_id
        metrics = request.metrics or _EMPTY
        size = len(metrics)
        if client_instance_id in RESERVED_UUIDS:
            self._limits.use(LimitName.REJECTED_BYTES, identity, size, now)
            return PushOutcome(
                response=PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST),
                identity=identity,
                client_instance_id=client_instance_id,
                wire_bytes=size,
                problem="the client instance id is zero or reserved",
            )
        instance, _ = self._find_or_create(client_instance_id, identity, now)
        if isinstance(instance, Exceeded):
            return PushOutcome(
                response=PushTelemetryResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED),
                identity=identity,
                client_instance_id=client_instance_id,
                wire_bytes=size,
                problem=str(instance),
                exceeded=instance,
            )
        identity = instance.identity
        error = instance.check_push(request.subscription_id, now, terminating=request.terminating)
        if error is not ErrorCode.NONE:
            return _refused(instance, error, _PROBLEMS[error], size)
        exceeded = self._limits.over(LimitName.REJECTED_BYTES, identity, now) or self._limits.over(
            LimitName.ACCEPTED_BYTES, identity, now
        )
        if exceeded is not None:
            return _refused(
                instance, ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(exceeded), size, exceeded=exceeded
            )
        inflated = _EMPTY
        labelled = LabelledMetrics()
        labels = self._labels(identity)
        site = site_of(identity.source_address)
        try:
            inflated = self._inflate(request.compression_type, instance.treatment.compression, metrics)
            if inflated:
                labelled = label_metrics(
                    inflated,
                    instance.label_bytes(labels),
                    max_entries=self._settings.max_entries,
                    steps=self._steps.for_client(instance.treatment.bad_metrics),
                    max_series=self.series.allowed(client_instance_id, identity.principal, site),
                )
        except PushError as problem:
            # A few bytes may have cost much work.
            inflated_bytes = max(len(inflated), problem.inflated_bytes)
            self._limits.use(LimitName.REJECTED_BYTES, identity, max(size, inflated_bytes), now)
            self.offenders.record_push(
                client_instance_id, inflated_bytes, now, too_large=isinstance(problem, TooLargeError)
            )
            return _refused(instance, problem.error_code, str(problem), size, len(inflated))
        self.offenders.record_push(client_instance_id, len(inflated), now, too_large=False)
        instance.accept_push(now, received_at_ns, terminating=request.terminating)
        self.series.record_push(
            client_instance_id,
            principal=identity.principal,
            client_id=self._folding.fold(identity.client_id),
            site=site,
            series=labelled.series,
            overflowed=labelled.overflowed,
            now=now,
        )
        if labelled.data:
            self._limits.use(LimitName.ACCEPTED_BYTES, identity, len(labelled.data), now)
        if labelled.series or labelled.overflowed:
            push_id = content_id(client_instance_id, inflated, terminating=request.terminating)
        else:
            push_id = empty_id(client_instance_id, self._broker.id, received_at_ns, instance.pushes_accepted)
        return PushOutcome(
            response=_ACCEPTED,
            identity=identity,
            client_instance_id=client_instance_id,
            push=build_push(
                labelled.data,
                push_id=push_id,
                terminating=request.terminating,
                instance=instance,
                identity=identity,
                broker=self._broker,
                labels=labels,
                received_at_ns=received_at_ns,
            ),
            wire_bytes=size,
            inflated_bytes=len(inflated),
            metrics=labelled,
        )

    def _apply_settings(self, settings: TelemetrySettings, hash_key: bytes | None) -> None:
        """Compile the rules of the settings; an invalid one raises before anything changes."""
        quirks = Quirks(settings.quirks, compression=settings.compression)
        steps = Steps(settings.normalization, settings.privacy, hash_key)
        self._folding = ClientIdFolding(settings.series.client_id_folding)
        self._quirks = quirks
        self._steps = steps
        self._settings = settings

    def _inflate(self, codec: int, accepted: Collection[int], metrics: bytes | memoryview) -> bytes:
        if codec not in CODEC_NAMES:
            raise UnknownCodecError(f"compression type {codec} is unknown")
        # An empty push is valid with any known codec. So is a push that inflates to nothing,
        # because Java clients compress that too.
        if not metrics:
            return _EMPTY
        if codec != _UNCOMPRESSED and codec not in accepted:
            raise UnknownCodecError(
                f"compression type {codec} ({CODEC_NAMES[codec]}) was not offered to this client"
            )
        if len(metrics) > self._max_bytes:
            raise TooLargeError(f"{len(metrics)} bytes are more than {self._max_bytes} allowed")
        return inflate(codec, metrics, self._settings.max_inflated_bytes)

    def _new_id(self) -> Uuid:
        client_instance_id = random_uuid(self._random_bytes)
        while self.instances.find(client_instance_id) is not None:
            client_instance_id = random_uuid(self._random_bytes)
        return client_instance_id

    def _find_or_create(
        self, client_instance_id: Uuid, identity: ClientIdentity, now: float
    ) -> tuple[ClientInstance | Exceeded, bool]:
        """Return the instance of a request, and whether it is new.

        A client may have failed over from another broker, so a push creates an instance too. When
        the peer is over its limit of new instances, the limit is returned and no instance is kept.
        """
        instance = self.instances.look_up(client_instance_id, now)
        created = instance is None
        if instance is None:
            exceeded = self._limits.take(LimitName.NEW_INSTANCES, identity, now)
            if exceeded is not None:
                return exceeded, False
            if client_instance_id == ZERO_UUID:
                client_instance_id = self._new_id()
            instance = ClientInstance(client_instance_id, identity, now)
        if identity.client_instance_id != client_instance_id:
            identity = replace(identity, client_instance_id=client_instance_id)
        if created or instance.subscriptions is not self.subscriptions:
            self._assign(instance, identity)
        instance.adjust(self.offenders.demand(client_instance_id, now), self.backpressure.factor)
        self.instances.keep(instance, identity, now)
        return instance, created

    def _on_forget(self, client_instance_id: Uuid) -> None:
        self.series.forget(client_instance_id)
        self.offenders.forget(client_instance_id)

    def _assign(self, instance: ClientInstance, identity: ClientIdentity) -> None:
        instance.assign(
            identity,
            self.subscriptions,
            self._quirks.treatment(identity.client_software_name, identity.client_software_version),
            default_interval_ms=self._settings.default_interval_ms,
        )

    def _labels(self, identity: ClientIdentity) -> Labels:
        """Return the labels of a push, folded and with the privacy rules applied."""
        labels = identity_labels(identity, self._broker)
        client_id = self._folding.fold(identity.client_id)
        if client_id != identity.client_id:
            labels = labels._replace(client_id=client_id)
        return self._steps.privacy.labels(labels)


_ACCEPTED: Final = PushTelemetryResponse(error_code=ErrorCode.NONE)

_PROBLEMS: Final = {
    ErrorCode.INVALID_REQUEST: "the instance already sent a terminating push",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "the push interval is not over",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "the subscription id is not the instance's current one",
}


def _refused(
    instance: ClientInstance,
    error: ErrorCode,
    problem: str,
    wire_bytes: int,
    inflated_bytes: int = 0,
    *,
    exceeded: Exceeded | None = None,
) -> PushOutcome:
    return PushOutcome(
        response=PushTelemetryResponse(error_code=instance.refuse(error)),
        identity=instance.identity,
        client_instance_id=instance.id,
        wire_bytes=wire_bytes,
        inflated_bytes=inflated_bytes,
        problem=problem,
        exceeded=exceeded,
    )
