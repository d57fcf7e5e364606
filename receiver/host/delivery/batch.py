"""The parts of a batch: which is exported next, and which push is at fault.

Pure: the sender exports, and says here what came of it.

Some failures do not say whether the destination or a push is at fault: an exception that nobody
expected, HTTP 500, gRPC's INTERNAL. Such a batch is halved until one push fails alone. Then this
push is a *suspect*: it waits while other pushes are exported. A suspect that fails again directly
after another push was accepted is contradicted by it. After :data:`_PROOFS` contradictions the push
is at fault, and is dropped. If no other push is accepted either, the destination is at fault, and
nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from receiver.host.delivery.observed_export import Accepted, Refused
from receiver.host.delivery.statistics import DropReason
from receiver.plugin import Push

#: One contradiction may be chance, for example where one of two servers behind an address fails.
_PROOFS: Final = 3


@dataclass(slots=True, kw_only=True, eq=False)
class Part:
    """Pushes that are exported together."""

    pushes: Sequence[Push]
    """At least one."""
    failures: int = 0
    """Failures in a row."""
    failed_at: float = 0.0
    """The time of the first of them, in monotonic seconds."""
    retry_after_s: float | None = None
    """The delay that the destination asked for last."""
    is_suspect: bool = False
    """Whether this single push has failed alone, for an unclear reason."""
    contradictions: int = 0
    """How often it failed directly after another push was accepted."""
    outcome: Accepted | Refused | None = None
    """What became of it; None: it is still to be exported."""

    def failed(self, now: float, retry_after_s: float | None) -> None:
        """Count a failure."""
        if not self.failures:
            self.failed_at = now
        self.failures += 1
        self.retry_after_s = retry_after_s


class Batch:
    """The parts of one batch, in the order of the queue."""

    def __init__(self, pushes: Sequence[Push], max_items: int) -> None:
        self._parts: list[Part] = []
        self._max_items = max_items
        # Whether the last export was accepted, so that the next failure contradicts it.
        self._has_accepted = False
        self.extend(pushes)

    def extend(self, pushes: Sequence[Push]) -> None:
        """Add pushes that were read from the queue after these."""
        size = self._max_items
        self._parts += [Part(pushes=pushes[at : at + size]) for at in range(0, len(pushes), size)]

    @property
    def is_done(self) -> bool:
        """Whether every part has been taken as finished."""
        return not self._parts

    @property
    def has_only_suspects(self) -> bool:
        """Whether every push that is still to be exported is a suspect."""
        return all(part.is_suspect for part in self._undecided())

    def next(self, *, one_push: bool) -> tuple[Part, bool]:
        """Return the part to export next, and whether it need not wait for its back-off.

        ``one_push`` asks for a single push, because the destination may be away.
        """
        suspects = [part for part in self._undecided() if part.is_suspect]
        if suspects and self._has_accepted:
            return suspects[0], True
        part = next((part for part in self._undecided() if not part.is_suspect), None)
        if part is None:
            return min(suspects, key=lambda suspect: suspect.failures), False
        if len(part.pushes) > 1 and (one_push or suspects):
            part = self._split(part, 1)
        return part, False

    def retry(self, part: Part, now: float, retry_after_s: float | None) -> None:
        """Note that the destination did not take a part now."""
        self._has_accepted = False
        part.failed(now, retry_after_s)

    def halve(self, part: Part) -> None:
        """Note that a part of several pushes failed, and halve it."""
        self._has_accepted = False
        part.failures, part.retry_after_s = 0, None
        self._split(part, len(part.pushes) // 2)

    def suspect(self, part: Part, now: float, reason: DropReason) -> None:
        """Note that a push failed for an unclear reason; refuse it if it is at fault."""
        if part.is_suspect and self._has_accepted:
            part.contradictions += 1
        part.is_suspect = True
        self.retry(part, now, None)
        if part.contradictions >= _PROOFS:
            self.finish(part, Refused(reason, 0))

    def finish(self, part: Part, outcome: Accepted | Refused) -> None:
        """Note what became of a part."""
        part.outcome = outcome
        if isinstance(outcome, Accepted) and not outcome.sent:
            return  # it proves nothing of the destination
        self._has_accepted = isinstance(outcome, Accepted)
        if self._has_accepted:
            # The destination works, so the remaining parts get the full retry time.
            for other in self._undecided():
                other.failures, other.retry_after_s = 0, None

    def take_finished(self) -> list[tuple[Part, Accepted | Refused]]:
        """Remove and return the oldest parts that are decided, in the order of the queue."""
        finished = []
        while self._parts and (outcome := self._parts[0].outcome) is not None:
            finished.append((self._parts.pop(0), outcome))
        return finished

    def _undecided(self) -> Iterator[Part]:
        return (part for part in self._parts if part.outcome is None)

    def _split(self, part: Part, at: int) -> Part:
        index = self._parts.index(part)
        older, newer = replace(part, pushes=part.pushes[:at]), replace(part, pushes=part.pushes[at:])
        self._parts[index : index + 1] = [older, newer]
        return older
