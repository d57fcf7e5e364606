"""The state of all series of all client instances, and what each push does to it.

Owns who is there, since when and for how long, and how many series there may be. How deltas add up is
``plugins.cumulative.series``'s.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic

from plugins.cumulative.series import Series, SeriesState, Target, TargetState
from plugins.cumulative.taken import Ended, Taken
from plugins.cumulative.taking import Taking
from plugins.cumulative.view import PushView
from receiver.plugin import Push

__all__ = ["Cumulative", "Statistics"]

#: Silence, in push intervals, by which a series has ended.
_SILENCE: Final = 3
#: How many of its last pushes an instance is known to repeat.
_REMEMBERED_PUSHES: Final = 8
#: Resources of one instance that are known by their bytes; a client has one at a time.
_REMEMBERED_RESOURCES: Final = 4
#: Bytes of a Resource; the receiver's own labels are less than half of this at their longest.
_MAX_RESOURCE: Final = 65_536
#: What part of all series an instance may have at the expense of others.
_SHARE: Final = 10
#: How often everybody's silence is looked at.
_LOOK_EVERY_NS: Final = 1_000_000_000


@dataclass(slots=True)
class Statistics:
    """What there is, and what happened so far.

    Attributes:
        series: Series that live.
        evicted_instances: Client instances whose series ended for want of room.
    """

    series: int = 0
    evicted_instances: int = 0


@dataclass(slots=True, eq=False)
class _Instance(Generic[TargetState, SeriesState]):
    """A client instance; one that has ended stays for as long as it may repeat a push."""

    seen_ns: int
    silence_ns: int
    swept_ns: int
    series: int = 0
    targets: dict[Hashable, Target[TargetState, SeriesState]] = field(default_factory=dict)
    by_resource: dict[bytes, Target[TargetState, SeriesState]] = field(default_factory=dict)
    pushes: deque[Hashable] = field(default_factory=lambda: deque(maxlen=2 * _REMEMBERED_PUSHES))


class Cumulative(Generic[TargetState, SeriesState]):
    """Makes pushes cumulative; for use by one thread at a time.

    Args:
        max_series: How many series may live. At the bound, an instance that has a tenth of them gets no more,
            and one that has less ends another: the largest that has more than a tenth, else that whose last
            push is the oldest. So whatever one client tells takes no more than a tenth from the others.
        identify: What of a Resource (its bytes as in ``resource.proto``) tells targets of an instance apart;
            all of it by default, so that a client whose Resource changes begins anew.
    """

    def __init__(
        self, *, max_series: int, identify: Callable[[bytes], Hashable] = lambda resource: resource
    ) -> None:
        self.statistics = Statistics()
        self._max_series = max_series
        self._share = max(1, max_series // _SHARE)
        self._identify = identify
        #: Whose last push is the newest is the last.
        self._instances: OrderedDict[str, _Instance[TargetState, SeriesState]] = OrderedDict()
        #: Those that have more than their share: always fewer than ``_SHARE``.
        self._large: set[_Instance[TargetState, SeriesState]] = set()
        self._looked_ns = 0

    def take(self, push: Push) -> Taken[TargetState, SeriesState]:
        """Add a push; what time it is is when it was received.

        Args:
            push: The next push. The same again adds nothing: see :class:`~plugins.cumulative.once.Once`.

        Returns:
            The push, cumulative, and what ended.
        """
        context, payload = push.context, push.payload
        now = context.received_at_ns
        ended = self.expire(now)
        instance = self._instance(push, ended)
        taken = Taken(points={}, ended=ended, push=PushView())
        keys = (payload.push_id, (now, payload.sequence))
        if any(key in instance.pushes for key in keys):
            return taken
        instance.pushes.extend(keys)
        taken.push = PushView.FromString(payload.data)
        self._take_metrics(instance, taken)
        if payload.terminating:
            self._end(instance, ended)
        return taken

    def expire(self, now_ns: int) -> Ended[TargetState, SeriesState]:
        """End the series of everybody who has been silent for three push intervals.

        Args:
            now_ns: Nanoseconds since the epoch, on the clock of ``received_at_ns``. A caller that works off
                pushes of the past must not say what time it is now.

        Returns:
            What ended; nothing when it is less than a second since the last look.
        """
        ended: Ended[TargetState, SeriesState] = Ended()
        if abs(now_ns - self._looked_ns) >= _LOOK_EVERY_NS:
            self._looked_ns = now_ns
            silent = [
                (name, one) for name, one in self._instances.items() if now_ns - one.seen_ns > one.silence_ns
            ]
            for name, instance in silent:
                self._end(instance, ended)
                del self._instances[name]
        return ended

    def _instance(
        self, push: Push, ended: Ended[TargetState, SeriesState]
    ) -> _Instance[TargetState, SeriesState]:
        now, name = push.context.received_at_ns, push.payload.client_instance_id
        silence_ns = _SILENCE * push.context.push_interval_ms * 1_000_000
        instance = self._instances.get(name)
        if instance is None:
            while len(self._instances) >= self._max_series:
                self._evict_oldest(ended)
            instance = self._instances[name] = _Instance(now, silence_ns, now)
            return instance
        self._instances.move_to_end(name)
        if now - instance.seen_ns > instance.silence_ns:
            self._end(instance, ended)
        instance.seen_ns, instance.silence_ns = now, silence_ns
        return instance

    def _take_metrics(
        self, instance: _Instance[TargetState, SeriesState], taken: Taken[TargetState, SeriesState]
    ) -> None:
        taking = Taking(
            taken, now_ns=instance.seen_ns, make_room=lambda: self._make_room(instance, taken.ended)
        )
        for resource_metrics in taken.push.resource_metrics:
            resource = b"".join(resource_metrics.resource)
            if len(resource) > _MAX_RESOURCE:
                for scope_metrics in resource_metrics.scope_metrics:
                    taking.refuse_scope(scope_metrics)
                continue
            target = self._target(instance, resource)
            for scope_metrics in resource_metrics.scope_metrics:
                taking.take_scope(target, scope_metrics)
        taking.close()
        if taking.shapes:
            # A client tells all that it has under one Resource: one that is missing is one that it had.
            for target in [one for one in instance.targets.values() if one not in taking.shapes]:
                self._end_target(instance, target, taken.ended)
        self._sweep(instance, taken.ended)

    def _target(
        self, instance: _Instance[TargetState, SeriesState], resource: bytes
    ) -> Target[TargetState, SeriesState]:
        target = instance.by_resource.get(resource)
        if target is None:
            key = self._identify(resource)
            target = instance.targets.get(key)
            if target is None:
                target = instance.targets[key] = Target(key)
            if len(instance.by_resource) >= _REMEMBERED_RESOURCES:
                instance.by_resource.clear()
            instance.by_resource[resource] = target
        target.resource = resource
        return target

    def _make_room(
        self, instance: _Instance[TargetState, SeriesState], ended: Ended[TargetState, SeriesState]
    ) -> bool:
        """Make room for one more series, and count it; False where there is none."""
        while self.statistics.series >= self._max_series:
            if instance.series >= self._share:
                return False
            if self._large:
                self.statistics.evicted_instances += 1
                self._end(max(self._large, key=lambda one: one.series), ended)
            else:
                self._evict_oldest(ended)
        self.statistics.series += 1
        instance.series += 1
        if instance.series > self._share:
            self._large.add(instance)
        return True

    def _evict_oldest(self, ended: Ended[TargetState, SeriesState]) -> None:
        _, oldest = self._instances.popitem(last=False)
        if oldest.targets:
            self.statistics.evicted_instances += 1
        self._end(oldest, ended)

    def _sweep(
        self, instance: _Instance[TargetState, SeriesState], ended: Ended[TargetState, SeriesState]
    ) -> None:
        """End series that the client doesn't tell any more, a partition's that it lost for instance."""
        if abs(instance.seen_ns - instance.swept_ns) <= instance.silence_ns:
            return
        instance.swept_ns = instance.seen_ns
        oldest_ns = instance.seen_ns - instance.silence_ns
        for target in instance.targets.values():
            for name, family in list(target.series.items()):
                for attributes, series in list(family.items()):
                    if series.seen_ns < oldest_ns:
                        del family[attributes]
                        self._end_series(instance, series, ended)
                if not family:
                    del target.series[name]

    def _end(
        self, instance: _Instance[TargetState, SeriesState], ended: Ended[TargetState, SeriesState]
    ) -> None:
        for target in list(instance.targets.values()):
            self._end_target(instance, target, ended)

    def _end_target(
        self,
        instance: _Instance[TargetState, SeriesState],
        target: Target[TargetState, SeriesState],
        ended: Ended[TargetState, SeriesState],
    ) -> None:
        del instance.targets[target.key]
        instance.by_resource.clear()
        for family in target.series.values():
            for series in family.values():
                self._end_series(instance, series, ended)
        ended.targets.append(target)

    def _end_series(
        self,
        instance: _Instance[TargetState, SeriesState],
        series: Series[SeriesState],
        ended: Ended[TargetState, SeriesState],
    ) -> None:
        series.alive = False
        self.statistics.series -= 1
        instance.series -= 1
        if instance.series <= self._share:
            self._large.discard(instance)
        ended.series.append(series)
