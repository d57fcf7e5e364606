"""The plugin contract.

Third parties import it as ``from kafka_client_telemetry import plugin``.

A plugin takes clients' telemetry to one destination. It is a class that derives from
:class:`ClientTelemetryReceiver` and is found by an entry point in the group
``kafka_client_telemetry.plugins``. The entry point's name is the ``type`` that an operator writes
in ``plugins:``. A plugin may use every name in this module, and nothing else of the receiver.

The lifecycle, which the plugin host guarantees:

1. The host validates the operator's settings with :attr:`~ClientTelemetryReceiver.Config` before
   anything starts. An invalid setting stops the start and names its field.
2. The host constructs the plugin with that configuration. The constructor must do no I/O.
3. Each plugin has its own thread and its own bounded queue. The host calls ``start``, ``export`` or
   ``export_batch``, and ``stop`` on that thread only, one at a time, in this order. They may block:
   only this plugin waits.
4. The outcome of an export decides what happens to its pushes:

   * :class:`RetryableError`: the host retries the same pushes after a back-off, for at most
     ``retry.max_elapsed_s``.
   * :class:`BatchRefusedError`: the host halves the batch and exports the halves.
   * :class:`PermanentError`: the host drops and counts the pushes.
   * Any other exception is a crash: the host stops and restarts the plugin, then exports the batch
     in halves. A single push that crashes the plugin twice is dropped.

   After a restart of the receiver, the host may export a push again that succeeded before. No
   outcome reaches a client (KIP-714: a receiver's failure is not the client's fault).
5. The host calls ``stop`` at the end, after a failed ``start``, and after each crash. ``start`` may
   follow on the same object. A ``stop`` at the end that exceeds the drain time is abandoned with
   its thread.

``kafka-telemetry doctor`` constructs the plugin in a process of its own and calls
``check_destination``, and nothing else.

The exceptions say who must act::

    ExportError
    +-- RetryableError    the destination is slow or away: the same push may succeed later
    +-- UnclearError      the destination or a push is at fault: the host compares with other pushes
    +-- PermanentError    the same push will always fail: the operator must act
        +-- BatchRefusedError    these pushes fail together; smaller batches may succeed
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.plugin.config import PluginConfig
from receiver.plugin.secret import Secret
from receiver.plugin.tls import TlsConfig

__all__ = [
    "NO_NODE_ID",
    "OTLP_CONTENT_TYPE",
    "BatchRefusedError",
    "ClientTelemetryContext",
    "ClientTelemetryPayload",
    "ClientTelemetryReceiver",
    "ExportError",
    "ExportResult",
    "PermanentError",
    "PluginConfig",
    "Push",
    "PushIdentity",
    "RetryableError",
    "Secret",
    "TlsConfig",
    "UnclearError",
]

#: :attr:`ClientTelemetryContext.broker_id` while the node id is not known; none is negative.
NO_NODE_ID = -1

_PUSH_TELEMETRY = 72

#: KIP-714's content type of a push: OTLP metrics as protobuf.
OTLP_CONTENT_TYPE = "OTLP"

#: The type of :attr:`Push.identity`: client instance id, time received in ns, sequence number.
PushIdentity = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTelemetryContext:
    """The client and connection of a push (KIP-714, "Receiver plugin interface").

    Attributes:
        connection_id: The receiver's own id of the connection; unique while the receiver runs.
        listener: Name of the listener the client connected to.
        security_protocol: ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``.
        source_address: The client's address as text.
        source_port: The client's port.
        principal: The authenticated principal, ``User:ANONYMOUS`` where there is none.
        client_id: The client id of its request headers; empty when the client sends null.
        client_software_name: KIP-511's software name, ``unknown`` when the client sends none.
        client_software_version: KIP-511's software version, ``unknown`` when the client sends none.
        broker_id: Node id of the broker that the client is connected to; :data:`NO_NODE_ID` while
            it is not known.
        cluster_id: Id of the broker's cluster; None until it is known.
        subscription_id: The subscription the metrics were collected for.
        push_interval_ms: How often the client was asked to push, in milliseconds.
        received_at_ns: When the push arrived, in nanoseconds since the epoch.
        sasl_mechanism: The SASL mechanism of the login, such as ``PLAIN``; None without SASL.
        request_version: Version of the PushTelemetry request; None if a broker took it.
        correlation_id: The request's correlation id, which a client's log may show; None if it is
            not known.
    """

    connection_id: str
    listener: str
    security_protocol: str
    source_address: str
    source_port: int
    principal: str
    client_id: str
    client_software_name: str
    client_software_version: str
    broker_id: int
    cluster_id: str | None
    subscription_id: int
    push_interval_ms: int
    received_at_ns: int
    sasl_mechanism: str | None = None
    request_version: int | None = None
    correlation_id: int | None = None

    @property
    def request_type(self) -> int:
        """The API key of the request: PushTelemetry's."""
        return _PUSH_TELEMETRY


@dataclass(frozen=True, kw_only=True)
class ClientTelemetryPayload:
    """One push, validated and labelled.

    Attributes:
        client_instance_id: The client instance's id in Kafka's text form (22 characters).
        terminating: Whether the client marked its last push (KIP-714, "Terminating").
        data: A ``MetricsData`` as OTLP bytes, which is also an ``ExportMetricsServiceRequest``.
            Empty if the client pushed no metrics or none remained: then the push only says that the
            client lives, or that it ends. The concatenated data of several pushes is one valid
            ``MetricsData`` of all of them, because protobuf appends repeated fields.
        sequence: The number of this push among the instance's pushes to this receiver, from 1; 0 if
            it is no push, but says that the client is :attr:`disconnected`.
        push_id: 32 hexadecimal digits. A push that the client repeats has the same one, even at
            another broker and compressed anew: it is a hash of the instance's id, the uncompressed
            metrics and ``terminating``. Each push without data points has another one.
        content_type: Always :data:`OTLP_CONTENT_TYPE`.
    """

    client_instance_id: str
    terminating: bool
    data: bytes
    sequence: int
    push_id: str
    content_type: str = OTLP_CONTENT_TYPE

    @functools.cached_property
    def metrics(self) -> MetricsData:
        """The decoded :attr:`data`, decoded on first use.

        Plugins share it: do not change it.
        """
        return MetricsData.FromString(self.data)

    @property
    def disconnected(self) -> bool:
        """Whether this is no push, but the end of the client's connection.

        The client sent no terminating push, and was not back within three push intervals. There are
        no metrics, and the time of receipt is the end of the connection.
        """
        return self.sequence == 0

    def release(self) -> None:
        """Free the decoded metrics, which are many times larger than :attr:`data`.

        The host calls it when a plugin is done with the push, because the push may wait in another
        plugin's queue, and that queue counts only :attr:`data`.
        """
        self.__dict__.pop("metrics", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A payload with its context: one item of a queue and of a batch."""

    context: ClientTelemetryContext
    payload: ClientTelemetryPayload

    @property
    def identity(self) -> PushIdentity:
        """The idempotency key: unique, and the same in every export, even after a restart.

        It consists of the client instance's id, :attr:`ClientTelemetryContext.received_at_ns` and
        :attr:`ClientTelemetryPayload.sequence`.
        """
        return self.payload.client_instance_id, self.context.received_at_ns, self.payload.sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """A destination's answer to an export that it accepted, at least in part.

    Attributes:
        rejected_points: Data points the destination refused (OTLP's partial success).
        message: The destination's reason, for the log.
        sent: False if there was nothing to send, so that the destination was not asked and the
            result does not prove that it works.
    """

    rejected_points: int = 0
    message: str = ""
    sent: bool = True


@dataclass(eq=False)
class ExportError(Exception):
    """Base of export failures; the subclass says whether a retry can help.

    Attributes:
        reason: For the log; must not contain a secret.
    """

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class RetryableError(ExportError):
    """The destination is slow or away.

    The host retries the same pushes after a back-off.

    Attributes:
        retry_after_s: The delay that the destination asks for, in seconds; None for no wish.
    """

    retry_after_s: float | None = None


class UnclearError(ExportError):
    """It is not known whether the destination or one of the pushes is at fault.

    An example is HTTP's 500. The host exports other pushes, and drops a push only if it fails alone
    while others are accepted. An exception that is no :class:`ExportError` counts as such an error
    too; the plugin is then stopped and started.
    """


@dataclass(eq=False)
class PermanentError(ExportError):
    """The same pushes will always fail: the host drops and counts them.

    Attributes:
        rejected_points: Data points that the destination rejected.
    """

    rejected_points: int = 0


class BatchRefusedError(PermanentError):
    """The destination refused this batch; smaller batches of its pushes may succeed.

    The batch is too large, or one push in it is malformed. The host exports the halves, so that one
    client's push costs no other client's. A push that is refused alone is dropped and counted.
    """


class ClientTelemetryReceiver:
    """Base of plugins (KIP-714's ClientTelemetryReceiver).

    The module documents the lifecycle. A plugin implements ``export`` or ``export_batch``.
    """

    #: The type of the plugin's settings; the host validates the operator's settings against it.
    Config: ClassVar[type[PluginConfig]] = PluginConfig

    #: The maximum number of pushes for ``export_batch``. With 1, the host calls only ``export``.
    max_batch_items: int = 1

    def __init__(self, config: PluginConfig) -> None:
        self.config = config

    def start(self) -> None:
        """Open connections and files. After an error the host retries with a back-off."""

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> ExportResult | None:
        """Send one push; by default as a batch.

        Return an :class:`ExportResult` if the destination accepted only a part.

        Raises:
            RetryableError: Try again later.
            PermanentError: Never try again.
        """
        return self.export_batch([Push(context=context, payload=payload)])

    def export_batch(self, pushes: Sequence[Push]) -> ExportResult | None:
        """Send up to :attr:`max_batch_items` pushes at once; all succeed or fail together.

        Raises:
            RetryableError: Try all of them again later.
            BatchRefusedError: Try the halves.
            PermanentError: Never try any of them again.
        """
        raise NotImplementedError("a plugin with max_batch_items > 1 implements export_batch")

    def stop(self) -> None:
        """Close what ``start`` opened."""

    def use_config(self, config: PluginConfig) -> None:
        """Go on with settings whose files were read again, as after a rotation.

        The host calls it on the plugin's thread, between two exports, when a file has changed that
        the settings name. Only secrets and the content of files differ from before. By default the
        plugin is stopped, constructed again in place, and started. A plugin that keeps something in
        memory overrides it: it opens what is new, and closes what is old only then.

        Raises:
            Exception: The files can't be used. The plugin goes on with the settings that it has,
                and the host tries again.
        """
        before = self.config
        self.stop()
        try:
            type(self).__init__(self, config)
            self.start()
        except Exception:
            type(self).__init__(self, before)
            self.start()
            raise

    def check_destination(self, timeout_s: float) -> str | None:
        """Prove that the destination would take pushes, and change nothing there.

        ``kafka-telemetry doctor`` calls it once, on a plugin that was constructed and not started,
        perhaps while another process exports to the same destination.

        Args:
            timeout_s: Seconds after which the result is of no use any more.

        Returns:
            What was proven, for the operator; None if this plugin can prove nothing. It must not
            contain a secret.

        Raises:
            ExportError: The destination can't be reached or refuses this plugin.
        """
        return None
