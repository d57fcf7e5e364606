"""The state of all series of all client instances, and what each push does to it.

Owns which instances exist, since when and for how long, and which of them yield when the budget is spent. How
deltas add up is ``plugins.cumulative.series``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic

from google.protobuf.message import DecodeError

from plugins.cumulative.heaviest import Heaviest
from plugins.cumulative.instances import INSTANCE_BYTES, Budget, Instance, Peer
from plugins.cumulative.peer import peer_of
from plugins.cumulative.series import Series, SeriesState, Target, TargetState
from plugins.cumulative.sizes import series_bytes, target_bytes
from plugins.cumulative.taken import Ended, Taken
from plugins.cumulative.taking import Taking
from plugins.cumulative.view import PushView
from receiver.plugin import Push

__all__ = ["DEFAULT_MAX_BYTES", "Cumulative", "Statistics"]

#: Bytes that all series may hold together, unless the operator sets another bound.
DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024

#: Push intervals of silence after which a series has ended.
_SILENCE: Final = 3
#: Bytes of a Resource; the receiver's own labels are less than half of this at their longest.
_MAX_RESOURCE: Final = 65_536
#: How often all instances are checked for silence.
_LOOK_EVERY_NS: Final = 1_000_000_000


@dataclass(slots=True)
class Statistics:
    """What the state holds, and what it gave up so far.

    Attributes:
        series: Living series.
        size: Estimated bytes of all series, targets and instances.
        evicted_instances: Instances whose series ended for lack of room.
        evicted_series: Series that ended for lack of room.
    """

    series: int = 0
    size: int = 0
    evicted_instances: int = 0
    evicted_series: int = 0


class Cumulative(Generic[TargetState, SeriesState]):
    """Makes pushes cumulative; for use by one thread at a time.

    The series share a budget of series and bytes. A peer is a principal, or the source address of clients
    that have not logged in. When the budget is spent, room for a new series is taken from the peer that holds
    most, and within that peer from the instance that holds most; the newest series of that instance ends. A
    push whose own peer and instance hold most gets no room: its new series are refused. So a peer can exhaust
    its own share only, and a client instance only its own share of its peer's.

    Args:
        max_series: Bound on the number of living series.
        max_bytes: Bound on the estimated bytes of all series, targets and instances.
        identify: Which part of a Resource (bytes of ``resource.proto``) tells the targets of an instance
            apart. The default is all of it, so that a client whose Resource changes begins anew.
        series_bytes: Estimates the bytes of a series' attributes: from its target's key, its attributes and
            its number of samples. Raises ValueError for attributes that cannot be used.
        target_bytes: Estimates the bytes of a target from its Resource.
    """

    def __init__(
        self,
        *,
        max_series: int,
        max_bytes: int = DEFAULT_MAX_BYTES,
        identify: Callable[[bytes], Hashable] = lambda resource: resource,
        series_bytes: Callable[[Hashable, tuple[bytes, ...], int], int] = series_bytes,
        target_bytes: Callable[[bytes], int] = target_bytes,
    ) -> None:
        self.statistics = Statistics()
        self._budget = Budget(max_series, max_bytes)
        self._identify = identify
        self._series_bytes = series_bytes
        self._target_bytes = target_bytes
        self._instances: dict[str, Instance[TargetState, SeriesState]] = {}
        self._peers: dict[str, Peer[TargetState, SeriesState]] = {}
        self._heaviest: Heaviest[Peer[TargetState, SeriesState]] = Heaviest()
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
        taken = Taken(points={}, ended=ended, push=PushView())
        instance = self._instance(push, ended)
        if instance is None:
            taken.push = PushView.FromString(payload.data)
            self._refuse(taken, now)
            return taken
        keys = (payload.push_id, (now, payload.sequence))
        if any(key in instance.pushes for key in keys):
            return taken
        instance.pushes.extend(keys)
        taken.push = PushView.FromString(payload.data)
        self._take_metrics(instance, taken)
        if payload.terminating:
            self._end(instance, ended)
            instance.peer.instances.move_to_end(instance.name, last=False)
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
            silent = [one for one in self._instances.values() if now_ns - one.seen_ns > one.silence_ns]
            for instance in silent:
                self._forget(instance, ended)
        return ended

    def _instance(
        self, push: Push, ended: Ended[TargetState, SeriesState]
    ) -> Instance[TargetState, SeriesState] | None:
        """The instance of a push; None if it is new and its peer has no room for it."""
        now, name = push.context.received_at_ns, push.payload.client_instance_id
        silence_ns = _SILENCE * push.context.push_interval_ms * 1_000_000
        instance = self._instances.get(name)
        if instance is None:
            peer_name = peer_of(push.context)
            peer = self._peers.setdefault(peer_name, Peer(peer_name))
            instance = Instance(name, peer, now, silence_ns, now)
            self._instances[name] = peer.instances[name] = instance
            if not self._make_room(instance, ended, series=0, size=INSTANCE_BYTES):
                self._forget(instance, ended)
                return None
            return instance
        instance.peer.instances.move_to_end(name)
        if now - instance.seen_ns > instance.silence_ns:
            self._end(instance, ended)
        instance.seen_ns, instance.silence_ns = now, silence_ns
        return instance

    def _refuse(self, taken: Taken[TargetState, SeriesState], now_ns: int) -> None:
        taking = Taking(taken, now_ns=now_ns, make_room=lambda _series, _size: False)
        for resource_metrics in taken.push.resource_metrics:
            for scope_metrics in resource_metrics.scope_metrics:
                taking.refuse_scope(scope_metrics)

    def _take_metrics(
        self, instance: Instance[TargetState, SeriesState], taken: Taken[TargetState, SeriesState]
    ) -> None:
        def make_room(series: int, size: int) -> bool:
            return self._make_room(instance, taken.ended, series=series, size=size)

        taking = Taking(taken, now_ns=instance.seen_ns, make_room=make_room, series_bytes=self._series_bytes)
        for resource_metrics in taken.push.resource_metrics:
            resource = b"".join(resource_metrics.resource)
            target = self._target(instance, resource, make_room)
            for scope_metrics in resource_metrics.scope_metrics:
                if target is None:
                    taking.refuse_scope(scope_metrics)
                else:
                    taking.take_scope(target, scope_metrics)
        taking.close()
        if taking.shapes:
            # A client pushes everything under its current Resource: a target that is missing was an old one.
            for target in [one for one in instance.targets.values() if one not in taking.shapes]:
                self._end_target(instance, target, taken.ended)
        self._sweep(instance, taken.ended)

    def _target(
        self,
        instance: Instance[TargetState, SeriesState],
        resource: bytes,
        make_room: Callable[[int, int], bool],
    ) -> Target[TargetState, SeriesState] | None:
        """The target of a Resource; None if the Resource cannot be read or there is no room for it."""
        target = instance.by_resource.get(resource)
        if target is not None:
            return target
        if len(resource) > _MAX_RESOURCE:
            return None
        try:
            key = self._identify(resource)
            size = self._target_bytes(resource)
        except (DecodeError, ValueError):
            return None
        target = instance.targets.get(key)
        held = 0 if target is None else target.size
        if size > held and not make_room(0, size - held):
            return None
        if target is None:
            target = instance.targets[key] = Target(key)
        target.size = max(held, size)
        # The key is the target's own bytes, so it takes no further memory.
        instance.by_resource.clear()
        instance.by_resource[resource] = target
        target.resource = resource
        return target

    def _make_room(
        self,
        instance: Instance[TargetState, SeriesState],
        ended: Ended[TargetState, SeriesState],
        *,
        series: int,
        size: int,
    ) -> bool:
        """Make room for more series and bytes of an instance, and count them; False if there is none.

        Terminates because each step ends a series or an instance of another holder that is heavier than the
        requester will be.
        """
        statistics, budget, peer = self.statistics, self._budget, instance.peer
        while budget.exceeded_by(statistics.series + series, statistics.size + size):
            heaviest = self._heaviest.top()
            if heaviest is None:
                return False
            own = budget.weight(peer.series + series, peer.size + size)
            if heaviest is peer or heaviest.weight <= own:
                heaviest = peer
            oldest = next(iter(heaviest.instances.values()))
            if oldest is not instance and oldest.overdue(instance.seen_ns):
                self._evict(oldest, ended)
                continue
            victim = heaviest.heaviest.top()
            if victim is None or victim is instance:
                return False
            if heaviest is peer and victim.weight <= budget.weight(
                instance.series + series, instance.size + size
            ):
                return False
            self._trim(victim, ended)
        self._account(instance, series, size)
        return True

    def _account(self, instance: Instance[TargetState, SeriesState], series: int, size: int) -> None:
        self.statistics.series += series
        self.statistics.size += size
        instance.account(self._budget, series, size)
        self._heaviest.changed(instance.peer)

    def _trim(
        self, instance: Instance[TargetState, SeriesState], ended: Ended[TargetState, SeriesState]
    ) -> None:
        """End the newest series of an instance; an instance without series is forgotten."""
        if not instance.series:
            self._evict(instance, ended)
            return
        target = next(one for one in reversed(instance.targets.values()) if one.series)
        name, family = next(reversed(target.series.items()))
        _, series = family.popitem()
        if not family:
            del target.series[name]
        self._end_series(instance, series, ended)
        self.statistics.evicted_series += 1
        if not target.series:
            self._end_target(instance, target, ended)

    def _evict(
        self, instance: Instance[TargetState, SeriesState], ended: Ended[TargetState, SeriesState]
    ) -> None:
        if instance.targets:
            self.statistics.evicted_instances += 1
            self.statistics.evicted_series += instance.series
        self._forget(instance, ended)

    def _forget(
        self, instance: Instance[TargetState, SeriesState], ended: Ended[TargetState, SeriesState]
    ) -> None:
        self._end(instance, ended)
        self._account(instance, 0, -instance.size)
        peer = instance.peer
        peer.heaviest.discard(instance)
        del self._instances[instance.name], peer.instances[instance.name]
        if not peer.instances:
            self._heaviest.discard(peer)
            del self._peers[peer.name]

    def _sweep(
        self, instance: Instance[TargetState, SeriesState], ended: Ended[TargetState, SeriesState]
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
        self, instance: Instance[TargetState, SeriesState], ended: Ended[TargetState, SeriesState]
    ) -> None:
        for target in list(instance.targets.values()):
            self._end_target(instance, target, ended)

    def _end_target(
        self,
        instance: Instance[TargetState, SeriesState],
        target: Target[TargetState, SeriesState],
        ended: Ended[TargetState, SeriesState],
    ) -> None:
        del instance.targets[target.key]
        instance.by_resource.clear()
        for family in target.series.values():
            for series in family.values():
                self._end_series(instance, series, ended)
        self._account(instance, 0, -target.size)
        ended.targets.append(target)

    def _end_series(
        self,
        instance: Instance[TargetState, SeriesState],
        series: Series[SeriesState],
        ended: Ended[TargetState, SeriesState],
    ) -> None:
        series.alive = False
        self._account(instance, -1, -series.size)
        ended.series.append(series)
