"""When to try again: exponential back-off with jitter, as a pure decision.

Owns the arithmetic alone. The clock's reading and the random number come in as arguments; nobody sleeps here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from receiver.host.settings import RetrySettings

__all__ = ["MAX_RETRY_AFTER_S", "RetryPolicy"]

#: A destination may ask for a pause; whoever asks for more than this is not believed.
MAX_RETRY_AFTER_S = 3600.0

#: 1.0 s becomes something between 0.5 s and 1.5 s, so that sidecars don't come back in step.
_JITTER = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to wait between the attempts of one export, and when to give up.

    Attributes:
        initial_s: The first back-off in seconds.
        max_s: The longest back-off in seconds, before jitter.
        max_elapsed_s: Time from the first failure after which there is no further attempt; infinite: never.
    """

    initial_s: float
    max_s: float
    max_elapsed_s: float

    @classmethod
    def of(cls, settings: RetrySettings, *, default_elapsed_s: float) -> RetryPolicy:
        """The policy that an operator's settings describe; 0 seconds are without end."""
        return cls(
            initial_s=settings.initial_ms / 1000,
            max_s=max(settings.initial_ms, settings.max_ms) / 1000,
            max_elapsed_s=(default_elapsed_s if settings.max_elapsed_s is None else settings.max_elapsed_s)
            or math.inf,
        )

    def backoff_s(self, failures: int, random: float) -> float:
        """The pause after so many failures in a row.

        Args:
            failures: At least 1.
            random: Uniform in [0, 1).

        Returns:
            Seconds, between half and one and a half times the back-off.
        """
        # 2.0 ** 1024 overflows; by then the maximum applies anyhow.
        backoff = min(self.initial_s * 2.0 ** min(failures - 1, 60), self.max_s)
        return backoff * (1 - _JITTER + 2 * _JITTER * random)

    def delay_s(
        self, *, failures: int, elapsed_s: float, retry_after_s: float | None, random: float
    ) -> float | None:
        """The pause before the next attempt.

        The destination's wish prolongs the back-off and never shortens it. The last attempt falls on the
        end of the allowed time instead of being given up early.

        Args:
            failures: How often this export failed, at least 1.
            elapsed_s: Seconds since its first failure.
            retry_after_s: What the destination asked for; not a positive number: ignored.
            random: Uniform in [0, 1).

        Returns:
            Seconds, or None when it is time to give up.
        """
        left = self.max_elapsed_s - elapsed_s
        if left <= 0:
            return None
        delay = self.backoff_s(failures, random)
        if retry_after_s is not None and retry_after_s > 0:
            delay = max(delay, min(retry_after_s, MAX_RETRY_AFTER_S))
        return min(delay, left)
