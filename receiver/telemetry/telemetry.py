"""Answers KIP-714's RPCs: GetTelemetrySubscriptions and PushTelemetry.

Owns the client instances, the checks of a request and the answers. The metrics themselves go
through :mod:`receiver.telemetry.intake`. The caller delivers accepted pushes to plugins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from receiver.plugin import Push
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.clocks import ClientClocks
from receiver.telemetry.control.backpressure import BackPressure
from receiver.telemetry.control.limits import Exceeded, LimitName, Limits
from receiver.telemetry.control.offenders import Offenders
from receiver.telemetry.control.series import SeriesBudgets
from receiver.telemetry.control.series_history import SeriesHistory
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.departures import Departures
from receiver.telemetry.errors import InvalidInstanceError, NoPluginError
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import ClientInstance, ClientInstances, Defaults
from receiver.telemetry.intake import Intake
from receiver.telemetry.latest_pushes import LatestPushes
from receiver.telemetry.outcomes import PushOutcome, SubscriptionsOutcome, not_now, refused
from receiver.telemetry.owners import Owners
from receiver.telemetry.profiles import MetricProfiles
from receiver.telemetry.quirks import Treatment
from receiver.telemetry.rules import Rules
from receiver.telemetry.subscription import subscription_id
from receiver.wire.error_codes import ErrorCode
from receiver.wire.headers import RequestHeader
from receiver.wire.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import RESERVED_UUIDS, ZERO_UUID, Uuid, random_uuid

_EMPTY: Final = b""
# The shortest and longest wait of a client that has no subscription yet, in seconds.
_MIN_ASK_AGAIN_S: Final = 1.0
_MAX_ASK_AGAIN_S: Final = 60.0
# The same while no subscriptions are known.
_ASK_UNKNOWN_S: Final = 5.0


class ClientTelemetry:
    """Answers the telemetry RPCs and keeps the client instances. Not thread-safe.

    Args:
        settings: Limits, defaults and the operator's quirks.
        subscriptions: The subscriptions in force. Until they are known, a client is asked to come
            back soon, and its pushes wait for its next interval.
        limits: The limits of each peer, shared with the gateway and the sessions.
        random_bytes: Returns that many random bytes, as ``os.urandom`` does.
        hash_key: The content of ``telemetry.privacy.key``; None when nothing is hashed.

    Attributes:
        on_created: Called with each new client instance.
        on_forgotten: Called with the id of each client instance that is forgotten.

    Raises:
        InvalidValueError: A rule in the settings or the key for hashes is invalid.
    """

    def __init__(
        self,
        *,
        settings: TelemetrySettings,
        subscriptions: CurrentSubscriptions,
        limits: Limits,
        random_bytes: Callable[[int], bytes],
        hash_key: bytes | None = None,
    ) -> None:
        self.subscriptions = subscriptions
        self.on_created: Callable[[ClientInstance], object] = _ignore
        self.on_forgotten: Callable[[Uuid], object] = _ignore
        self._limits = limits
        self._random_bytes = random_bytes
        self.series = SeriesBudgets(settings.series)
        self.series_history = SeriesHistory(settings.series, limits, settings.max_instances)
        self.backpressure = BackPressure(settings.backpressure)
        self.offenders = Offenders(settings.backpressure)
        self.instances = ClientInstances(settings.max_instances, self._on_forget)
        self._departures = Departures(settings.max_instances)
        rules = Rules(settings, hash_key)
        self._quirks = rules.quirks
        self._settings = settings
        self.defaults = _defaults(settings)
        self.profiles = MetricProfiles()
        self.clocks = ClientClocks()
        self.latest_pushes = LatestPushes(settings.latest_pushes_bytes)
        self._intake = Intake(
            rules,
            limits=limits,
            series=self.series,
            history=self.series_history,
            offenders=self.offenders,
        )

    def treatment(self, identity: ClientIdentity) -> Treatment:
        """Return the quirks of a client's software."""
        return self._quirks.treatment(identity.client_software_name, identity.client_software_version)

    def replace_rules(self, rules: Rules) -> None:
        """Replace the settings and rules, from each client's next request on."""
        settings = rules.settings
        self._intake.replace_rules(rules)
        self._quirks = rules.quirks
        self._settings = settings
        self.defaults = _defaults(settings)
        self.instances.resize(settings.max_instances)
        self._departures.resize(settings.max_instances)
        self.latest_pushes.resize(settings.latest_pushes_bytes)
        self.series.replace_settings(settings.series)
        self.series_history.replace_settings(settings.series, settings.max_instances)
        self.backpressure.replace_settings(settings.backpressure)
        self.offenders.replace_settings(settings.backpressure)
        self.subscriptions.match_anew()

    @property
    def owners(self) -> Owners:
        """The owners of clients; another value counts from each client's next push on."""
        return self._intake.owners

    @owners.setter
    def owners(self, owners: Owners) -> None:
        self._intake.owners = owners

    def principal_label(self, principal: str) -> str | None:
        """Return a principal as privacy rules let it be shown; None: not at all."""
        return self._intake.principal_label(principal)

    def topic_value(self, topic: str) -> str | None:
        """Return a topic as privacy rules let it be shown; None: not at all."""
        return self._intake.topic_value(topic)

    def get_telemetry_subscriptions(
        self, identity: ClientIdentity, request: GetTelemetrySubscriptionsRequest, *, now: float
    ) -> SubscriptionsOutcome:
        """Answer which metrics a client is to push (KIP-714, "GetTelemetrySubscriptions").

        The throttle time of the answer is always 0, because clients mute their connection by it.
        ``now`` is monotonic seconds.
        """
        if not self.subscriptions.known:
            return self._ask_again(identity, request, _ASK_UNKNOWN_S)
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
            if instance.matched != (identity, instance.revealed):
                self._assign(instance, identity)
                self.instances.keep(instance, identity, now)
            response = GetTelemetrySubscriptionsResponse(
                client_instance_id=instance.id,
                subscription_id=instance.subscription_id,
                accepted_compression_types=instance.treatment.compression,
                push_interval_ms=instance.push_interval_ms,
                telemetry_max_bytes=self._settings.max_bytes,
                delta_temporality=instance.request.delta,
                requested_metrics=instance.requested_metrics,
            )
        return SubscriptionsOutcome(
            response=response, identity=identity, client_instance_id=instance.id, created=created
        )

    def ask_again(
        self, identity: ClientIdentity, request: GetTelemetrySubscriptionsRequest, exceeded: Exceeded
    ) -> SubscriptionsOutcome:
        """Tell a client whose peer is over a limit to ask again soon.

        No instance is kept.

        The answer requests no metrics, so the client repeats its request after the push interval.
        After THROTTLING_QUOTA_EXCEEDED, a Java client without a subscription waits for five
        minutes. The interval is the time until the peer is below the limit, 1 to 60 s, with up to
        100 % of jitter, so that clients do not come back at once.
        """
        wait_s = min(max(exceeded.retry_after_s, _MIN_ASK_AGAIN_S), _MAX_ASK_AGAIN_S)
        return self._ask_again(identity, request, wait_s, exceeded)

    def _ask_again(
        self,
        identity: ClientIdentity,
        request: GetTelemetrySubscriptionsRequest,
        wait_s: float,
        exceeded: Exceeded | None = None,
    ) -> SubscriptionsOutcome:
        client_instance_id = request.client_instance_id
        if client_instance_id == ZERO_UUID:
            client_instance_id = self._new_id()
        jitter = int.from_bytes(self._random_bytes(2), "big") / 65_536
        interval_ms = int(1000 * wait_s * (1 + jitter))
        delta = self._settings.delta_temporality
        return SubscriptionsOutcome(
            response=GetTelemetrySubscriptionsResponse(
                client_instance_id=client_instance_id,
                subscription_id=subscription_id(client_instance_id, (), interval_ms, delta=delta),
                push_interval_ms=interval_ms,
                telemetry_max_bytes=self._settings.max_bytes,
                delta_temporality=delta,
            ),
            identity=identity,
            client_instance_id=client_instance_id,
            created=False,
            exceeded=exceeded,
        )

    def push_telemetry(
        self,
        identity: ClientIdentity,
        request: PushTelemetryRequest,
        *,
        now: float,
        received_at_ns: int,
        header: RequestHeader | None = None,
    ) -> PushOutcome:
        """Accept or refuse a push (KIP-714, "PushTelemetry"). No client input raises.

        The request's metrics are not used after this call. ``now`` is monotonic seconds,
        ``received_at_ns`` nanoseconds since the epoch.
        """
        instance = self._admit(identity, request, now)
        if isinstance(instance, PushOutcome):
            return instance
        if not self.subscriptions.known:
            return not_now(instance.identity, request, ErrorCode.THROTTLING_QUOTA_EXCEEDED, _UNKNOWN)
        error = instance.check_push(request.subscription_id, now, terminating=request.terminating)
        if error is not ErrorCode.NONE:
            return not_now(instance.identity, request, error, _PROBLEMS[error])
        if not self.subscriptions.has_plugins and not instance.requested_metrics:
            self._limits.use(LimitName.REJECTED_BYTES, instance.identity, len(request.metrics or _EMPTY), now)
            return refused(instance.identity, request, NoPluginError(_NO_PLUGIN))
        wanted = None if self._settings.unsubscribed_metrics == "keep" else instance.wanted
        outcome = self._intake.accept(
            instance,
            request,
            received_at_ns=received_at_ns,
            now=now,
            request_version=None if header is None else header.api_version,
            correlation_id=None if header is None else header.correlation_id,
            wanted=wanted,
        )
        if outcome.push is None:
            instance.last_error = ErrorCode(outcome.response.error_code)
        else:
            software = instance.identity.client_software_name
            requested = instance.request.metrics
            data = outcome.push.payload.data
            self.latest_pushes.record(instance.id, data, received_at_ns, now)
            pushed_at_ns = self.profiles.sample(data, software, requested, now)
            if pushed_at_ns:
                self.clocks.record(instance.id, pushed_at_ns, received_at_ns)
            if instance.revealed != instance.matched[1]:
                self._match_revealed(instance)
        return outcome

    def accept(
        self,
        identity: ClientIdentity,
        request: PushTelemetryRequest,
        *,
        now: float,
        received_at_ns: int,
        empty_push_id: str | None = None,
        interval_ms: int | None = None,
        correlation_id: int | None = None,
        checked_by_broker: bool = True,
    ) -> PushOutcome:
        """Accept or refuse metrics that a broker asked for and accepted.

        Neither the interval nor a subscription is checked. The client instance is kept like that of
        a client's own request.

        Args:
            now: Monotonic seconds.
            received_at_ns: When the broker got them, in nanoseconds since the epoch.
            empty_push_id: The push id of a push without data points.
            interval_ms: The client's push interval, if it is known.
            correlation_id: The correlation id of the client's request, if it is known.
            checked_by_broker: Whether the broker has checked codec and size.
        """
        instance = self._admit(identity, request, now, interval_ms)
        if isinstance(instance, PushOutcome):
            return instance
        outcome = self._intake.accept(
            instance,
            request,
            received_at_ns=received_at_ns,
            now=now,
            empty_push_id=empty_push_id,
            correlation_id=correlation_id,
            checked_by_broker=checked_by_broker,
        )
        if outcome.push is not None:
            self.latest_pushes.record(instance.id, outcome.push.payload.data, received_at_ns, now)
            if instance.revealed != instance.matched[1]:
                self._match_revealed(instance)
        return outcome

    def disconnected(self, connection_id: str, *, now: float, now_ns: int) -> None:
        """Forget the instances of a connection that has ended.

        Args:
            now: Monotonic seconds.
            now_ns: The same, in nanoseconds since the epoch.
        """
        for instance in self.instances.of_connection(connection_id):
            self._departures.add(instance, now, now_ns)
        self.instances.disconnected(connection_id)

    def take_departed(self, now: float) -> list[Push]:
        """Return, for plugins, some clients that were not back within their lifetime.

        Java producers send no terminating push, so this is how most clients end.
        """
        return [
            self._intake.departed(departed.instance, departed.since_ns)
            for departed in self._departures.take(now)
        ]

    def _match_revealed(self, instance: ClientInstance) -> None:
        """Match an instance anew if its push revealed what a subscription matches.

        The next push is then answered UNKNOWN_SUBSCRIPTION_ID, and the client asks at once.
        """
        if instance.subscriptions.reads_revealed:
            self._assign(instance, instance.matched[0])

    def _admit(
        self,
        identity: ClientIdentity,
        request: PushTelemetryRequest,
        now: float,
        interval_ms: int | None = None,
    ) -> ClientInstance | PushOutcome:
        """Return the instance of metrics, or what becomes of them without one."""
        if request.client_instance_id in RESERVED_UUIDS:
            self._limits.use(LimitName.REJECTED_BYTES, identity, len(request.metrics or _EMPTY), now)
            problem = InvalidInstanceError("the client instance id is zero or reserved")
            return refused(identity, request, problem)
        instance, _ = self._find_or_create(request.client_instance_id, identity, now, interval_ms)
        return refused(identity, request, instance) if isinstance(instance, Exceeded) else instance

    def _new_id(self) -> Uuid:
        client_instance_id = random_uuid(self._random_bytes)
        while self.instances.find(client_instance_id) is not None:
            client_instance_id = random_uuid(self._random_bytes)
        return client_instance_id

    def _find_or_create(
        self, client_instance_id: Uuid, identity: ClientIdentity, now: float, interval_ms: int | None = None
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
        if created or instance.subscriptions is not self.subscriptions.asked:
            self._assign(instance, identity)
            if created:
                self.on_created(instance)
        if instance.reported_interval_ms != interval_ms:
            instance.report_interval(interval_ms)
        instance.adjust(self.offenders.demand(client_instance_id, now), self.backpressure.factor)
        if created:
            self._departures.forget(client_instance_id)
            if (pace := self.instances.take_pace(client_instance_id, now)) is not None:
                instance.resume(pace)
        self.instances.keep(instance, identity, now)
        return instance, created

    def _on_forget(self, client_instance_id: Uuid) -> None:
        self.on_forgotten(client_instance_id)
        self.series.forget(client_instance_id)
        self.latest_pushes.forget(client_instance_id)
        self.offenders.forget(client_instance_id)
        self.clocks.forget(client_instance_id)

    def _assign(self, instance: ClientInstance, identity: ClientIdentity) -> None:
        instance.assign(
            identity,
            self.subscriptions.asked,
            self.treatment(identity),
            self.defaults,
        )


_NO_PLUGIN: Final = "no plugin takes metrics: plugins is empty"
_UNKNOWN: Final = "the subscriptions have not been read yet"
_PROBLEMS: Final = {
    ErrorCode.INVALID_REQUEST: "the instance already sent a terminating push",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "the push interval is not over",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "the subscription id is not the instance's current one",
}


def _ignore(_: object) -> None:
    pass


def _defaults(settings: TelemetrySettings) -> Defaults:
    return Defaults(interval_ms=settings.default_interval_ms, delta=settings.delta_temporality)
