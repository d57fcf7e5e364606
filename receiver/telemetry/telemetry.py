"""The telemetry core's front: the two RPCs of KIP-714, answered.

Owns the order of checks and what is answered. It must not read a clock, a socket or a random source, nor
know what becomes of a push that it took.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from receiver.plugin.sources import site_of
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.compression import CODEC_NAMES, CODECS, inflate
from receiver.telemetry.connection import Broker, Connection
from receiver.telemetry.control.backpressure import BackPressure
from receiver.telemetry.control.limits import Exceeded, Limits
from receiver.telemetry.control.offenders import Offenders
from receiver.telemetry.control.series import SeriesBudgets
from receiver.telemetry.errors import PushError, TooLargeError, UnknownCodecError
from receiver.telemetry.folding import ClientIdFolding
from receiver.telemetry.instance import ClientInstance, ClientInstances
from receiver.telemetry.labels import LabelFacts, label_facts
from receiver.telemetry.otlp import LabelledMetrics, label_metrics
from receiver.telemetry.outcomes import PushOutcome, SubscriptionsOutcome
from receiver.telemetry.push import handed_over
from receiver.telemetry.quirks import Quirks
from receiver.telemetry.steps import Steps
from receiver.telemetry.subscription import ClientFacts, SubscriptionSet, subscription_id
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from receiver.wire.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from receiver.wire.uuid import RESERVED_UUIDS, ZERO_UUID, Uuid, random_uuid

__all__ = ["ClientTelemetry", "PushOutcome", "SubscriptionsOutcome"]

_EMPTY: Final = b""
#: How long a client is told to wait at least and at most where it has no subscription yet, in seconds.
_MIN_ASK_AGAIN_S: Final = 1.0
_MAX_ASK_AGAIN_S: Final = 60.0
_UNCOMPRESSED: Final = CODECS["none"]


class ClientTelemetry:
    """Answers GetTelemetrySubscriptions and PushTelemetry, and remembers the client instances.

    To be used by one thread at a time.

    Args:
        settings: Limits, defaults and the operator's quirks.
        broker: The broker beside us; its cluster id may become known later.
        subscriptions: What is asked of clients, until :meth:`replace_subscriptions`.
        limits: What a client may take; others count there too.
        random_bytes: Gives so many random bytes, as ``os.urandom`` does.
        hash_key: What ``telemetry.privacy.key_file`` holds; None where nothing is hashed.

    Raises:
        QuirkError: A rule in the settings is wrong.
        PrivacyError: Something is to be hashed, and the key is missing or too short.
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
        self._take_over(settings, hash_key)
        self._max_bytes = settings.max_bytes
        self._broker = broker
        self._subscriptions = subscriptions
        self._limits = limits
        self._random_bytes = random_bytes
        self._series = SeriesBudgets(settings.series)
        self._backpressure = BackPressure(settings.backpressure)
        self._offenders = Offenders(settings.backpressure)
        self._instances = ClientInstances(settings.max_instances, self._forgotten)

    @property
    def subscriptions(self) -> SubscriptionSet:
        """What is asked of clients now."""
        return self._subscriptions

    @property
    def instances(self) -> ClientInstances:
        """The client instances remembered, for reading."""
        return self._instances

    @property
    def series(self) -> SeriesBudgets:
        """Who has how many series, for reading."""
        return self._series

    @property
    def backpressure(self) -> BackPressure:
        """By what push intervals are longer; each client learns of a change with its next request."""
        return self._backpressure

    @property
    def offenders(self) -> Offenders:
        """Who is asked for less, for reading."""
        return self._offenders

    def replace_subscriptions(self, subscriptions: SubscriptionSet) -> None:
        """Ask something else of clients, from the next request of each on."""
        self._subscriptions = subscriptions

    def replace_settings(self, settings: TelemetrySettings, hash_key: bytes | None = None) -> None:
        """Work with other limits, defaults and quirks, from the next request of each client on.

        Args:
            settings: The new ones; ``max_bytes`` and ``max_instances`` stay as they were at the start.
            hash_key: What ``telemetry.privacy.key_file`` holds; None where nothing is hashed.

        Raises:
            QuirkError: A rule in the settings is wrong, and nothing has changed.
            PrivacyError: Something is to be hashed, and the key is missing or too short; likewise.
        """
        self._take_over(settings, hash_key)
        self._series.replace_settings(settings.series)
        self._backpressure.replace_settings(settings.backpressure)
        self._offenders.replace_settings(settings.backpressure)
        # Another set, if an equal one: every instance is matched anew.
        self._subscriptions = SubscriptionSet(self._subscriptions.subscriptions)

    def disconnected(self, connection: Connection) -> None:
        """Forget what is only remembered as long as a connection lasts."""
        self._instances.disconnected(connection)

    def forget_expired(self, now: float, most: int) -> int:
        """Forget instances whose time is over also while nobody asks for anything.

        Args:
            now: The time in seconds of the monotonic clock.
            most: How many may be forgotten in this call.

        Returns:
            How many were forgotten.
        """
        return self._instances.forget_expired(now, most)

    def get_telemetry_subscriptions(
        self, connection: Connection, request: GetTelemetrySubscriptionsRequest, *, now: float
    ) -> SubscriptionsOutcome:
        """Answer what a client shall push (KIP-714, "GetTelemetrySubscriptions").

        Args:
            connection: The connection that the request came over; its client instance id is set.
            request: The request.
            now: The time in seconds of a monotonic clock.

        Returns:
            The answer; its throttle time is always 0, because clients mute their connection by it.
        """
        client_instance_id = request.client_instance_id
        instance, created = self._use(client_instance_id, connection, now)
        if isinstance(instance, Exceeded):
            return self.ask_again(request, instance)
        client_instance_id = instance.id
        error = instance.get(now)
        if error is not ErrorCode.NONE:
            response = GetTelemetrySubscriptionsResponse(error_code=error)
        else:
            # A client may be another one than when its instance was matched, or tell more by now. It learns
            # a new subscription id here; at a push it could only be sent back.
            facts = ClientFacts.of(client_instance_id, connection)
            if facts != instance.facts:
                self._assign(instance, facts)
                self._instances.keep(instance, connection, now)
            response = GetTelemetrySubscriptionsResponse(
                client_instance_id=client_instance_id,
                subscription_id=instance.subscription_id,
                accepted_compression_types=instance.treatment.compression,
                push_interval_ms=instance.push_interval_ms,
                telemetry_max_bytes=self._max_bytes,
                delta_temporality=self._settings.delta_temporality,
                requested_metrics=instance.requested_metrics,
            )
        return SubscriptionsOutcome(response=response, client_instance_id=client_instance_id, created=created)

    def ask_again(
        self, request: GetTelemetrySubscriptionsRequest, exceeded: Exceeded
    ) -> SubscriptionsOutcome:
        """Tell a client whose peer is over a limit to ask again soon, and remember nothing of it.

        The answer asks for no metrics, so clients repeat the request after its push interval. After
        THROTTLING_QUOTA_EXCEEDED a Java client that has no subscription yet waits for five minutes instead.

        Args:
            request: The request.
            exceeded: The limit.

        Returns:
            The answer: the interval is the time until there is room, 1 to 60 s, and up to as much again, at
            random, so that clients do not come back all at once.
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
            client_instance_id=client_instance_id,
            created=False,
            exceeded=exceeded,
        )

    def push_telemetry(
        self, connection: Connection, request: PushTelemetryRequest, *, now: float, received_at_ns: int
    ) -> PushOutcome:
        """Take a push, or refuse it (KIP-714, "PushTelemetry").

        Args:
            connection: The connection that the request came over; its client instance id is set.
            request: The request; its metrics are not looked at after this call.
            now: The time in seconds of a monotonic clock.
            received_at_ns: The time in nanoseconds since the epoch.

        Returns:
            The answer, and what to hand to plugins; nothing that a client sends raises.
        """
        client_instance_id = request.client_instance_id
        metrics = request.metrics or _EMPTY
        size = len(metrics)
        if client_instance_id in RESERVED_UUIDS:
            self._limits.rejected(connection, size, now)
            return PushOutcome(
                response=PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST),
                client_instance_id=client_instance_id,
                wire_bytes=size,
                problem="the client instance id is zero or reserved",
            )
        instance, _ = self._use(client_instance_id, connection, now)
        if isinstance(instance, Exceeded):
            return PushOutcome(
                response=PushTelemetryResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED),
                client_instance_id=client_instance_id,
                wire_bytes=size,
                problem=str(instance),
                exceeded=instance,
            )
        error = instance.let_push_through(request.subscription_id, now, terminating=request.terminating)
        if error is not ErrorCode.NONE:
            return _refused(instance, error, _PROBLEMS[error], size)
        exceeded = self._limits.rejecting(connection, now) or self._limits.accepting(connection, now)
        if exceeded is not None:
            return _refused(
                instance, ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(exceeded), size, exceeded=exceeded
            )
        inflated = _EMPTY
        labelled = _NOTHING
        facts = self._facts(instance, connection)
        site = site_of(connection.source_address)
        try:
            inflated = self._inflate(request.compression_type, instance.treatment.compression, metrics)
            if inflated:
                labelled = label_metrics(
                    inflated,
                    instance.labels(facts),
                    max_entries=self._settings.max_entries,
                    steps=self._steps.of(instance.treatment.bad_metrics),
                    max_series=self._series.allowed(client_instance_id, connection.principal, site),
                )
        except PushError as problem:
            # A few bytes may have been much work.
            inflated_bytes = max(len(inflated), problem.inflated_bytes)
            self._limits.rejected(connection, max(size, inflated_bytes), now)
            self._offenders.pushed(
                client_instance_id, inflated_bytes, now, too_large=isinstance(problem, TooLargeError)
            )
            return _refused(instance, problem.error_code, str(problem), size, len(inflated))
        self._offenders.pushed(client_instance_id, len(inflated), now, too_large=False)
        instance.accept_push(now, received_at_ns, terminating=request.terminating)
        self._series.used(
            client_instance_id,
            principal=connection.principal,
            client_id=self._folding.fold(connection.client_id),
            site=site,
            series=labelled.series,
            overflowed=labelled.overflowed,
            now=now,
        )
        push = None
        if labelled.data:
            self._limits.accepted(connection, len(labelled.data), now)
            push = handed_over(
                labelled.data,
                request,
                instance=instance,
                connection=connection,
                broker=self._broker,
                facts=facts,
                received_at_ns=received_at_ns,
            )
        return PushOutcome(
            response=_ACCEPTED,
            client_instance_id=client_instance_id,
            push=push,
            wire_bytes=size,
            inflated_bytes=len(inflated),
            dropped_points=labelled.dropped_points,
            removed_labels=labelled.removed_labels,
            overflowed_points=labelled.overflowed,
            steps=labelled.steps,
        )

    def _take_over(self, settings: TelemetrySettings, hash_key: bytes | None) -> None:
        """Make what is made of settings alone; where one of them is wrong, nothing changes."""
        quirks = Quirks(settings.quirks, compression=tuple(CODECS[codec] for codec in settings.compression))
        steps = Steps(settings.normalization, settings.privacy, hash_key)
        self._folding = ClientIdFolding(settings.series.client_id_folding)
        self._quirks = quirks
        self._steps = steps
        self._settings = settings

    def _inflate(self, codec: int, accepted: Collection[int], metrics: bytes | memoryview) -> bytes:
        if codec not in CODEC_NAMES:
            raise UnknownCodecError(f"compression type {codec} is unknown")
        # An empty push is valid whichever of the codecs it names, and so is one that inflates to nothing:
        # Java clients compress that too.
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
        while self._instances.find(client_instance_id) is not None:
            client_instance_id = random_uuid(self._random_bytes)
        return client_instance_id

    def _use(
        self, client_instance_id: Uuid, connection: Connection, now: float
    ) -> tuple[ClientInstance | Exceeded, bool]:
        """Find an instance or create it, as a client may have failed over from another broker.

        Where that is one too many, the limit is returned and nothing is remembered.
        """
        instance = self._instances.look_up(client_instance_id, now)
        created = instance is None
        if instance is None:
            exceeded = self._limits.new_instance(connection, now)
            if exceeded is not None:
                return exceeded, False
            if client_instance_id == ZERO_UUID:
                client_instance_id = self._new_id()
            instance = ClientInstance(client_instance_id, connection, now)
        if created or instance.subscriptions is not self._subscriptions:
            self._assign(instance, ClientFacts.of(client_instance_id, connection))
        instance.ask(self._offenders.demand(client_instance_id, now), self._backpressure.factor)
        self._instances.keep(instance, connection, now)
        connection.client_instance_id = client_instance_id
        return instance, created

    def _forgotten(self, client_instance_id: Uuid) -> None:
        self._series.forget(client_instance_id)
        self._offenders.forget(client_instance_id)

    def _assign(self, instance: ClientInstance, facts: ClientFacts) -> None:
        instance.assign(
            facts,
            self._subscriptions,
            self._quirks.treatment(facts.client_software_name, facts.client_software_version),
            default_interval_ms=self._settings.default_interval_ms,
        )

    def _facts(self, instance: ClientInstance, connection: Connection) -> LabelFacts:
        """Say what the labels are, as far as they may be forwarded."""
        facts = label_facts(instance.text_id, connection, self._broker)
        client_id = self._folding.fold(connection.client_id)
        if client_id != connection.client_id:
            facts = facts._replace(client_id=client_id)
        return self._steps.privacy.facts(facts)


_ACCEPTED: Final = PushTelemetryResponse(error_code=ErrorCode.NONE)
_NOTHING: Final = LabelledMetrics(data=b"")

_PROBLEMS: Final = {
    ErrorCode.INVALID_REQUEST: "the instance said before that it terminates",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "it came before the push interval was over",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "its subscription id is not the instance's current one",
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
        client_instance_id=instance.id,
        wire_bytes=wire_bytes,
        inflated_bytes=inflated_bytes,
        problem=problem,
        exceeded=exceeded,
    )
