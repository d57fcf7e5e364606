"""Bounds the distinct series that a client instance and its peers add over time.

The budgets (:mod:`~.series`) bound the series of an instance's last push. A client that changes its
series with each push stays within them, and fills every destination that keeps series. So this
module remembers which series each instance has pushed. A series that an instance had not pushed
before is *new*. It fills a bucket of the instance, and those of its source address, block and
principal (:class:`~receiver.telemetry.control.limits.Limits`). Where a bucket is full, the push is
accepted without its other new series (:mod:`receiver.telemetry.steps.overflow`). They are not
remembered, so they come in later, at the bucket's rate.

An instance is remembered longer than :class:`~receiver.telemetry.instance.ClientInstances` keeps
it, so that a client that reconnects has no new series. Memory is bounded: eight bytes for each
series, of at most twice ``telemetry.series.max_total`` series, and twice
``telemetry.max_instances`` instances. The one that pushed least recently is forgotten first. All
its series are new then. So are they if the client has another client id, principal or software,
because these label its series.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from receiver.settings.metric_processing import SeriesSettings
from receiver.telemetry.control.limits import Exceeded, LimitName, Limits
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.steps.series_keys import PushedSeries
from receiver.wire.uuid import Uuid, uuid_to_text

#: Series and instances that are remembered, as multiples of those that may be there at once.
_REMEMBERED: Final = 2
#: Series that may be there at once if there is no total budget.
_MAX_TOTAL: Final = 10_000_000
#: Series remembered of one instance. With more, those of its last push stay.
_MAX_OF_INSTANCE: Final = 65_536
#: Pushes whose series are recognised without looking at each.
_SHAPES: Final = 4

_HOUR_S: Final = 3_600.0
# Times are floats: a bucket may have room this much early.
_TOLERANCE: Final = 1e-6
_NOTHING: Final[frozenset[int]] = frozenset()


class SeriesHistory:
    """Remembers the series of client instances. Not thread-safe.

    A push with the series of one before costs one hash. Another one costs a step for each of its
    data points, and each series that the instance has.
    """

    def __init__(self, settings: SeriesSettings, limits: Limits, max_instances: int) -> None:
        self._limits = limits
        self._instances: OrderedDict[Uuid, _Instance] = OrderedDict()
        self.remembered = 0  # series
        self.replace_settings(settings, max_instances)

    def replace_settings(self, settings: SeriesSettings, max_instances: int) -> None:
        """Replace the bounds; they apply from the next push."""
        self._allowed = settings.new_per_client_per_hour
        self._max_series = _REMEMBERED * (settings.max_total or _MAX_TOTAL)
        self._max_instances = _REMEMBERED * max_instances
        self._forget_oldest()

    def admission(self, identity: ClientIdentity, client_instance_id: Uuid, now: float) -> Admission:
        """Return the decision on the series of a push, to be made once.

        ``now`` is monotonic.
        """
        return Admission(self, identity, client_instance_id, now)

    def refused(
        self, identity: ClientIdentity, client_instance_id: Uuid, pushed: PushedSeries, now: float
    ) -> tuple[AbstractSet[int], Exceeded | None]:
        """Remember the series of a push, and count the new ones.

        Returns:
            The keys of the series that may not be added, and the limit that they are over.
        """
        instance = self._use(client_instance_id, _labels(identity))
        if pushed.shape in instance.shapes:
            return _NOTHING, None
        keys = pushed.distinct()
        known = set(instance.series)
        new = [key for key in keys if key not in known]
        room, exceeded = self._room(instance, client_instance_id, identity, len(new), now)
        admitted, refused = new[:room], frozenset(new[room:])
        self._count(instance, identity, len(admitted), now)
        if len(known) + len(admitted) > _MAX_OF_INSTANCE:
            self._remember(instance, [key for key in keys if key not in refused])
        elif admitted:
            self._remember(instance, [*instance.series, *admitted])
        if not refused:
            instance.shapes = (pushed.shape, *instance.shapes[: _SHAPES - 1])
        self._forget_oldest()
        return refused, exceeded

    def _use(self, client_instance_id: Uuid, labels: tuple[str, ...]) -> _Instance:
        instance = self._instances.get(client_instance_id)
        if instance is None:
            instance = self._instances[client_instance_id] = _Instance(labels)
        else:
            self._instances.move_to_end(client_instance_id)
            if instance.labels != labels:
                instance.labels = labels
                self._remember(instance, ())
        return instance

    def _remember(self, instance: _Instance, keys: list[int] | tuple[()]) -> None:
        self.remembered += len(keys) - len(instance.series)
        instance.series = array("q", keys)
        instance.shapes = ()

    def _room(
        self, instance: _Instance, client_instance_id: Uuid, identity: ClientIdentity, wanted: int, now: float
    ) -> tuple[int, Exceeded | None]:
        """Return how many new series fit, and the limit if that is fewer than wanted."""
        room, exceeded = self._limits.room(LimitName.NEW_SERIES, identity, wanted, now)
        if self._allowed is not None:
            unit_s = _HOUR_S / self._allowed
            free_s = _HOUR_S - max(0.0, instance.empty_at - now)
            own = int(free_s / unit_s + _TOLERANCE)
            if own < room:
                room = own
                exceeded = Exceeded(
                    limit=LimitName.NEW_SERIES,
                    scope="client_instance",
                    peer=uuid_to_text(client_instance_id),
                    allowed=self._allowed,
                    retry_after_s=(own + 1) * unit_s - free_s,
                )
        return room, exceeded

    def _count(self, instance: _Instance, identity: ClientIdentity, new: int, now: float) -> None:
        if new:
            self._limits.use(LimitName.NEW_SERIES, identity, new, now)
            if self._allowed is not None:
                instance.empty_at = max(instance.empty_at, now) + new * _HOUR_S / self._allowed

    def _forget_oldest(self) -> None:
        while len(self._instances) > 1 and (
            self.remembered > self._max_series or len(self._instances) > self._max_instances
        ):
            _, forgotten = self._instances.popitem(last=False)
            self.remembered -= len(forgotten.series)


class Admission:
    """The decision on the series of one push.

    Attributes:
        exceeded: The limit that new series of the push are over.
    """

    __slots__ = ("_arguments", "_history", "_now", "exceeded")

    def __init__(
        self, history: SeriesHistory, identity: ClientIdentity, client_instance_id: Uuid, now: float
    ) -> None:
        self._history = history
        self._arguments = identity, client_instance_id
        self._now = now
        self.exceeded: Exceeded | None = None

    def __call__(self, pushed: PushedSeries) -> AbstractSet[int]:
        """Return the keys of the series that may not be added."""
        refused, self.exceeded = self._history.refused(*self._arguments, pushed, self._now)
        return refused


@dataclass(slots=True)
class _Instance:
    """What is remembered of a client instance."""

    labels: tuple[str, ...]
    series: array[int] = field(default_factory=lambda: array("q"))
    shapes: tuple[int, ...] = ()  # of its last pushes without refused series
    empty_at: float = float("-inf")  # when its bucket is empty, in monotonic seconds


def _labels(identity: ClientIdentity) -> tuple[str, ...]:
    """Return the labels of a client that are dimensions of its series."""
    return (
        identity.client_id,
        identity.principal,
        identity.client_software_name,
        identity.client_software_version,
    )
