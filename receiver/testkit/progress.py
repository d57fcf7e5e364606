"""Where one client is in the script, and what it is answered.

Pure: times are arguments. A real broker's checks that every client meets come first or last, as in
Kafka: a reserved id, a push after the terminating one, the subscription id, the codec, the size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from receiver.testkit.recording import Get, Push, Subscription
from receiver.testkit.script import Script, Step
from receiver.wire.error_codes import ErrorCode
from receiver.wire.uuid import RESERVED_UUIDS

#: The first subscription id; each change adds one.
_FIRST_ID: Final = 0x5445_5354


@dataclass(frozen=True, slots=True)
class Treatment:
    """What the kit does with a telemetry request."""

    error: int = ErrorCode.NONE
    """The error code to answer."""
    throttle_ms: int = 0
    """The throttle time to answer."""
    delay_s: float = 0.0
    """Seconds until the answer."""
    disconnect: bool = False
    """Whether to close the connection."""
    unanswered: bool = False
    """Whether to do so without an answer."""


class Progress:
    """One client's way through the script.

    Args:
        now: Monotonic seconds.

    Attributes:
        terminated: Whether a terminating push was accepted.
        told: The subscription that the client was told last; None before.
    """

    def __init__(self, script: Script, now: float) -> None:
        self.terminated = False
        self.told: Subscription | None = None
        self._script = script
        self._fields: dict[str, Any] = script.initial()
        self._id = _FIRST_ID
        self._index = 0
        self._begin(script.steps[0], now, first=True)

    @property
    def step(self) -> Step:
        """The current step."""
        return self._script.steps[self._index]

    @property
    def subscription(self) -> Subscription:
        """The subscription that the client has to follow now."""
        return Subscription(id=self._id, **self._fields)

    def _begin(self, step: Step, now: float, *, first: bool = False) -> None:
        if step.subscription is not None:
            self._fields = step.subscription.applied(self._fields)
        if step.renews and not first:
            self._id += 1
        self._pushes = self._gets = 0
        self._treated = not step.special
        self._until = now + step.within_s

    def _advance(self, now: float) -> None:
        """Go to the next step as long as the current one is over."""
        while self._index + 1 < len(self._script.steps) and self._is_over(now):
            self._index += 1
            self._begin(self.step, now)

    def _is_over(self, now: float) -> bool:
        if now >= self._until:
            return True
        if not self._treated:
            return False
        if self.step.gets:
            return self._gets >= self.step.gets
        return self._pushes >= self.step.pushes

    def get(self, request: Get) -> Treatment:
        """Decide about a request for subscriptions; sets what the client is told."""
        self._advance(request.at)
        special = self._special("get")
        if special is None or not (special.error or special.unanswered):
            self._gets += 1
            self._advance(request.at)
            request.subscription = self.told = self.subscription
        request.step = self.step.name
        return special or Treatment()

    def push(self, request: Push) -> Treatment:
        """Decide about a push."""
        self._advance(request.at)
        request.step = self.step.name
        request.subscription = self.told
        if request.instance_id in RESERVED_UUIDS or self.terminated:
            return Treatment(ErrorCode.INVALID_REQUEST)
        known = self.told is not None and request.subscription_id == self._id
        special = self._special("push") if known and not request.terminating else None
        if special is not None:
            if special.error == ErrorCode.UNKNOWN_SUBSCRIPTION_ID:
                self._id += 1
            return special
        error = self._error(request, known=known)
        if known:
            self._pushes += 1
        if request.terminating and error == ErrorCode.NONE:
            self.terminated = True
        return Treatment(error)

    def _error(self, request: Push, *, known: bool) -> int:
        subscription = self.subscription
        if not known:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.size > 0 and request.codec and request.codec not in subscription.codecs:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if request.size > subscription.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def _special(self, kind: str) -> Treatment | None:
        """Return the step's special treatment, once."""
        step = self.step
        if self._treated or step.request != kind:
            return None
        self._treated = True
        return Treatment(
            ErrorCode[step.error] if step.error else ErrorCode.NONE,
            step.throttle_ms,
            step.delay_ms / 1000,
            step.disconnect is not None,
            step.disconnect == "unanswered",
        )
