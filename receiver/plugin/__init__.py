"""The contract between the receiver and a plugin: everything a plugin may import.

A plugin takes clients' telemetry to one destination. It is a class that derives from
:class:`ClientTelemetryReceiver` and is found by an entry point in the group
``kafka_client_telemetry.plugins``; the entry point's name is the ``type`` an operator writes in
``plugins:``.

The lifecycle, which the plugin host guarantees:

1. The host validates the operator's settings with the class's :attr:`~ClientTelemetryReceiver.Config`
   before anything starts; a bad setting stops the start and names its field.
2. The host constructs the plugin with that configuration. The constructor must do no I/O.
3. Every plugin has a thread and a bounded queue of its own. ``start``, ``export`` or ``export_batch``
   and ``stop`` are called on that thread only, one at a time, in this order; they may block, and only
   this plugin waits.
4. :class:`RetryableError` brings the same pushes back after a back-off, until the operator's
   ``retry.max_elapsed_s``; :class:`BatchRefusedError` brings a batch back in halves;
   :class:`PermanentError` drops and counts them. Any other exception is a crash: the plugin is stopped and
   started again, and the batch comes back in halves; a single push that crashes it twice is dropped. After a
   restart of the receiver a push may come again that succeeded before. No outcome of a plugin reaches a
   client (KIP-714: a receiver's failure is not the client's fault).
5. ``stop`` is called at the end, also after a failed ``start``, and after each crash; ``start`` may follow on
   the same object. At the end it is over within the host's drain time or abandoned with its thread.

The exceptions say who must act::

    ExportError
    +-- RetryableError    the destination is slow or away: the same push may succeed later
    +-- PermanentError    the same push will always fail: the operator must act
        +-- BatchRefusedError    these pushes will always fail together, a part of them may succeed
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from pydantic import BaseModel, ConfigDict

__all__ = [
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
]

#: What KIP-714 defines as the content type of a push: OTLP metrics as protobuf.
OTLP_CONTENT_TYPE = "OTLP"

#: What :attr:`Push.identity` is: a client instance's id, when it was received, and its number.
PushIdentity = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTelemetryContext:
    """Who pushed, over which connection, under which subscription (KIP-714, "Receiver plugin interface").

    Attributes:
        connection_id: The receiver's own id of the connection; unique while the receiver runs.
        listener: Name of the listener the client connected to.
        security_protocol: ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``.
        source_address: The client's address as text.
        source_port: The client's port.
        principal: The authenticated principal, ``User:ANONYMOUS`` where there is none.
        client_id: What the client calls itself in its request headers; empty when it sends null.
        client_software_name: KIP-511's software name, ``unknown`` when the client told none.
        client_software_version: KIP-511's software version, ``unknown`` when the client told none.
        broker_id: Node id of the broker the sidecar stands beside.
        cluster_id: Id of the broker's cluster; None until it is known.
        subscription_id: The subscription the metrics were collected for.
        push_interval_ms: How often the client was asked to push, in milliseconds.
        received_at_ns: When the push arrived, in nanoseconds since the epoch.
        sasl_mechanism: The SASL mechanism of the client's login, ``PLAIN`` for instance; None without SASL.
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


@dataclass(frozen=True, kw_only=True)
class ClientTelemetryPayload:
    """One push, already checked and labelled.

    Attributes:
        client_instance_id: The client instance's id in Kafka's text form (22 characters).
        terminating: Whether the client said that this is its last push (KIP-714, "Terminating").
        data: OTLP bytes of a ``MetricsData`` (the same bytes as an ``ExportMetricsServiceRequest``).
            Concatenating the data of several pushes gives a valid ``MetricsData`` of all of them,
            because protobuf appends repeated fields.
        sequence: Which push of this client instance it is for this receiver, counted from 1; a part of
            :attr:`Push.identity`.
        push_id: A hash of the instance's id and of the bytes as the client sent them, 32 hexadecimal digits:
            the same for a push that a client repeats, also to another broker's receiver.
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
        """The decoded view of :attr:`data`, decoded on first use; plugins share it: read, never change."""
        return MetricsData.FromString(self.data)

    def release(self) -> None:
        """Forget the decoded view, which is many times larger than :attr:`data`.

        The host calls it when a plugin is done with the push: a push that waits in another plugin's queue
        must take no more memory than that queue counts.
        """
        self.__dict__.pop("metrics", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A payload with its context: what a queue holds and a batch is made of."""

    context: ClientTelemetryContext
    payload: ClientTelemetryPayload

    @property
    def identity(self) -> PushIdentity:
        """The push's idempotency key: the same in every export of it, also after a restart, and no other's.

        Its client instance's id, :attr:`ClientTelemetryContext.received_at_ns`, and
        :attr:`ClientTelemetryPayload.sequence`.
        """
        return self.payload.client_instance_id, self.context.received_at_ns, self.payload.sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What a destination said of an export that it took.

    Attributes:
        rejected_points: Data points the destination refused (OTLP's partial success).
        message: The destination's reason, for the log.
    """

    rejected_points: int = 0
    message: str = ""


class ExportError(Exception):
    """An export failed; the leaf class says whether trying again can help."""


@dataclass(eq=False)
class RetryableError(ExportError):
    """The destination is slow or away: the host tries the same pushes again after a back-off.

    Attributes:
        reason: For the log; must not hold a secret.
        retry_after_s: The destination's own wish for the delay in seconds, None when it told none.
    """

    reason: str
    retry_after_s: float | None = None

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class PermanentError(ExportError):
    """The same pushes will always fail: the host drops and counts them.

    Attributes:
        reason: For the log; must not hold a secret.
    """

    reason: str
    rejected_points: int = field(default=0)

    def __str__(self) -> str:
        return self.reason


class BatchRefusedError(PermanentError):
    """The destination refused these pushes as a whole; a part of them may pass.

    The export is too large, or one push in it is malformed. The host halves a batch and tries the halves, so
    that one client's push costs no other client's; a push that is refused so alone is dropped and counted.
    """


class PluginConfig(BaseModel):
    """Base of every plugin's own settings: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class ClientTelemetryReceiver(ABC):
    """Takes pushes to one destination (KIP-714's ClientTelemetryReceiver); the module has the lifecycle."""

    #: The type of the plugin's own settings; the host validates the operator's against it.
    Config: ClassVar[type[PluginConfig]] = PluginConfig

    #: How many pushes one ``export_batch`` may get. 1 means that only ``export`` is called.
    max_batch_items: int = 1

    def __init__(self, config: PluginConfig) -> None:
        self.config = config

    def start(self) -> None:  # noqa: B027 # most plugins have something to open, not all
        """Open what the plugin needs. An error is logged and ``start`` is tried again after a back-off."""

    @abstractmethod
    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> ExportResult | None:
        """Take one push to the destination.

        Returns:
            None, or an :class:`ExportResult` when the destination took it only in part.

        Raises:
            RetryableError: Try again later.
            PermanentError: Never try again.
        """

    def export_batch(self, pushes: Sequence[Push]) -> ExportResult | None:
        """Take up to :attr:`max_batch_items` pushes in one go; all succeed or fail together.

        Raises:
            RetryableError: Try all of them again later.
            BatchRefusedError: Never try all of them together again; try the halves.
            PermanentError: Never try any of them again.
        """
        raise NotImplementedError("a plugin with max_batch_items > 1 implements export_batch")

    def stop(self) -> None:  # noqa: B027 # likewise
        """Close what ``start`` opened."""
