"""The state of all client instances, and how they share the memory bounds.

``plugins._shared.cumulative.accumulate`` adds the points of a push.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from plugins._shared.cumulative.accumulate import Accumulator, refuse_scope
from plugins._shared.cumulative.instances import INSTANCE_BYTES, Budget, Instance, Peer, Target, peer_of
from plugins._shared.cumulative.result import Ended, Result
from plugins._shared.cumulative.series import Series
from plugins._shared.cumulative.sizes import series_bytes, target_bytes
from plugins._shared.cumulative.view import PushView
from receiver.peers.shares import Holdings
from receiver.plugin import Push

#: Default bound on the bytes of all series.
DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024

#: Push intervals of silence after which a series has ended.
_SILENCE: Final = 3
#: Bound on the bytes of a Resource. The receiver's own labels have less than half of it.
_MAX_RESOURCE: Final = 65_536
#: Interval between checks for silent instances.
_CHECK_EVERY_NS: Final = 1_000_000_000


@dataclass(slots=True)
class Statistics:
    """Live series and their estimated bytes, and what was ended to make room."""

    series: int = 0
    size: int = 0
    evicted_instances: int = 0
    evicted_series: int = 0


class Cumulative:
    """Converts pushes to cumulative metrics. Not thread-safe.

    The series share a budget of series and bytes. A peer is a principal, or the source address of
    clients without a login. When the budget is spent, the heaviest instance of the heaviest peer
    makes room for a new series: its newest series ends. If the push itself comes from the heaviest
    peer and instance, its new series are refused. So a peer can exhaust only its own share, and an
    instance only its share of its peer's.

    Args:
        max_bytes: Bound on the estimated bytes of all series, targets and instances.
        identify: Returns the part of a Resource (``resource.proto`` bytes) that identifies a target
            within an instance. By default all of it, so that a client whose Resource changes starts
            anew.
        series_bytes: Estimates the bytes of a series from its target's key, its attributes and its
            number of samples. Raises ValueError for unusable attributes.
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
        self._instances: dict[str, Instance] = {}
        self._peers: dict[str, Peer] = {}
        self._weights: Holdings[Peer] = Holdings()
        self._checked_ns = 0

    def accumulate(self, push: Push) -> Result:
        """Add a push. Its receive time is the present time; a repeated push adds nothing."""
        context, payload = push.context, push.payload
        now = context.received_at_ns
        ended = self.expire(now)
        result = Result(points={}, ended=ended, push=PushView())
        instance = self._instance(push, ended)
        if instance is None:
            result.push = PushView.FromString(payload.data)
            for resource_metrics in result.push.resource_metrics:
                for scope_metrics in resource_metrics.scope_metrics:
                    refuse_scope(result, scope_metrics)
            return result
        keys = (payload.push_id, (now, payload.sequence))
        if any(key in instance.pushes for key in keys):
            return result
        instance.pushes.extend(keys)
        result.push = PushView.FromString(payload.data)
        self._accumulate_metrics(instance, result)
        if payload.terminating or payload.disconnected:
            self._end(instance, ended)
            instance.peer.instances.move_to_end(instance.name, last=False)
        return result

    def expire(self, now_ns: int) -> Ended:
        """End the series of instances that were silent for three push intervals.

        Nothing ends less than a second after the last check.

        Args:
            now_ns: Nanoseconds since the epoch, on the clock of ``received_at_ns``. A caller that
                works through a backlog must not pass the wall clock's time.
        """
        ended: Ended = Ended()
        if abs(now_ns - self._checked_ns) >= _CHECK_EVERY_NS:
            self._checked_ns = now_ns
            silent = [
                instance
                for instance in self._instances.values()
                if now_ns - instance.seen_ns > instance.silence_ns
            ]
            for instance in silent:
                self._forget(instance, ended)
        return ended

    def _instance(self, push: Push, ended: Ended) -> Instance | None:
        """Return the instance of a push; None if it is new and there is no room for it."""
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

    def _accumulate_metrics(self, instance: Instance, result: Result) -> None:
        def make_room(series: int, size: int) -> bool:
            return self._make_room(instance, result.ended, series=series, size=size)

        accumulator = Accumulator(
            result, now_ns=instance.seen_ns, make_room=make_room, series_bytes=self._series_bytes
        )
        for resource_metrics in result.push.resource_metrics:
            resource = b"".join(resource_metrics.resource)
            target = self._target(instance, resource, make_room)
            for scope_metrics in resource_metrics.scope_metrics:
                if target is None:
                    refuse_scope(result, scope_metrics)
                else:
                    accumulator.add_scope(target, scope_metrics)
        accumulator.finish()
        if accumulator.shapes:
            # A client pushes everything under its current Resource, so a missing target is an old
            # one.
            for target in [old for old in instance.targets.values() if old not in accumulator.shapes]:
                self._end_target(instance, target, result.ended)
        self._end_unpushed(instance, result.ended)

    def _target(
        self, instance: Instance, resource: bytes, make_room: Callable[[int, int], bool]
    ) -> Target | None:
        """Return the target of a Resource; None if it is invalid or has no room."""
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
        # The key is the target's own bytes object, so it takes no further memory.
        instance.by_resource.clear()
        instance.by_resource[resource] = target
        target.resource = resource
        return target

    def _make_room(self, instance: Instance, ended: Ended, *, series: int, size: int) -> bool:
        """Make room for series and bytes, and count them; False if there is none.

        The loop terminates, because each step ends a series or an instance that is heavier than the
        requester will be.
        """
        statistics, budget, peer = self.statistics, self._budget, instance.peer
        while budget.exceeded_by(statistics.series + series, statistics.size + size):
            heaviest = self._weights.largest()
            if heaviest is None:
                return False
            own = budget.weight(peer.series + series, peer.size + size)
            if heaviest is peer or self._weights.held_by(heaviest) <= own:
                heaviest = peer
            oldest = next(iter(heaviest.instances.values()))
            if oldest is not instance and oldest.overdue(instance.seen_ns):
                self._evict(oldest, ended)
                continue
            victim = heaviest.weights.largest()
            if victim is None or victim is instance:
                return False
            own = budget.weight(instance.series + series, instance.size + size)
            if heaviest is peer and peer.weights.held_by(victim) <= own:
                return False
            self._trim(victim, ended)
        self._account(instance, series, size)
        return True

    def _account(self, instance: Instance, series: int, size: int) -> None:
        statistics, peer, weight = self.statistics, instance.peer, self._budget.weight
        statistics.series += series
        statistics.size += size
        instance.series += series
        instance.size += size
        peer.weights.add(instance, weight(instance.series, instance.size) - peer.weights.held_by(instance))
        peer.series += series
        peer.size += size
        self._weights.add(peer, weight(peer.series, peer.size) - self._weights.held_by(peer))

    def _trim(self, instance: Instance, ended: Ended) -> None:
        """End the newest series of an instance. Forget an instance without series."""
        if not instance.series:
            self._evict(instance, ended)
            return
        target = next(newest for newest in reversed(instance.targets.values()) if newest.series)
        name, family = next(reversed(target.series.items()))
        _, series = family.popitem()
        if not family:
            del target.series[name]
        self._end_series(instance, [series], ended)
        self.statistics.evicted_series += 1
        if not target.series:
            self._end_target(instance, target, ended)

    def _evict(self, instance: Instance, ended: Ended) -> None:
        if instance.targets:
            self.statistics.evicted_instances += 1
            self.statistics.evicted_series += instance.series
        self._forget(instance, ended)

    def _forget(self, instance: Instance, ended: Ended) -> None:
        self._end(instance, ended)
        self._account(instance, 0, -instance.size)
        peer = instance.peer
        del self._instances[instance.name], peer.instances[instance.name]
        if not peer.instances:
            del self._peers[peer.name]

    def _end_unpushed(self, instance: Instance, ended: Ended) -> None:
        """End series that the client no longer pushes, such as those of a lost partition."""
        if abs(instance.seen_ns - instance.swept_ns) <= instance.silence_ns:
            return
        instance.swept_ns = instance.seen_ns
        oldest_ns = instance.seen_ns - instance.silence_ns
        for target in instance.targets.values():
            for name, family in list(target.series.items()):
                unpushed = [series for series in family.values() if series.seen_ns < oldest_ns]
                for series in unpushed:
                    del family[series.attributes]
                self._end_series(instance, unpushed, ended)
                if not family:
                    del target.series[name]

    def _end(self, instance: Instance, ended: Ended) -> None:
        for target in list(instance.targets.values()):
            self._end_target(instance, target, ended)

    def _end_target(self, instance: Instance, target: Target, ended: Ended) -> None:
        del instance.targets[target.key]
        instance.by_resource.clear()
        for family in target.series.values():
            self._end_series(instance, family.values(), ended)
        self._account(instance, 0, -target.size)
        ended.targets.append(target)

    def _end_series(self, instance: Instance, ending: Collection[Series], ended: Ended) -> None:
        for series in ending:
            series.alive = False
        self._account(instance, -len(ending), -sum(series.size for series in ending))
        ended.series += ending
