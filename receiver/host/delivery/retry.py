"""Computes retry delays: exponential back-off with jitter.

Pure arithmetic: the time and the random number come in as arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from receiver.host.settings import RetrySettings
from receiver.plugin.breaker import MAX_RETRY_AFTER_S

#: A delay of 1.0 s becomes one between 0.5 s and 1.5 s, so that sidecars do not retry in step.
_JITTER = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to wait between the attempts of one export, and when to give up."""

    initial_s: float
    """The first back-off in seconds."""
    max_s: float
    """The longest back-off in seconds, before jitter."""
    max_elapsed_s: float
    """Seconds from the first failure to the last attempt; may be infinite."""

    @classmethod
    def from_settings(cls, settings: RetrySettings, *, default_elapsed_s: float) -> RetryPolicy:
        """Return the policy of an operator's settings, in which 0 means no limit."""
        return cls(
            initial_s=settings.initial_ms / 1000,
            max_s=max(settings.initial_ms, settings.max_ms) / 1000,
            max_elapsed_s=(default_elapsed_s if settings.max_elapsed_s is None else settings.max_elapsed_s)
            or math.inf,
        )

    def backoff_s(self, failures: int, random: float) -> float:
        """Return the delay after a number of failures in a row, in seconds.

        It is half to one and a half times the back-off.

        Args:
            failures: At least 1.
            random: Uniform in [0, 1).
        """
        # 2.0 ** 1024 overflows; the maximum applies long before.
        backoff = min(self.initial_s * 2.0 ** min(failures - 1, 60), self.max_s)
        return backoff * (1 - _JITTER + 2 * _JITTER * random)

    def delay_s(
        self, *, failures: int, elapsed_s: float, retry_after_s: float | None, random: float
    ) -> float | None:
        """Return the seconds before the next attempt, or None to give up.

        The destination's delay may lengthen the back-off, but not shorten it. The last attempt is
        made at the end of the allowed time.

        Args:
            failures: Failures of this export, at least 1.
            elapsed_s: Seconds since its first failure.
            retry_after_s: The delay that the destination asked for; ignored unless positive.
            random: Uniform in [0, 1).
        """
        left = self.max_elapsed_s - elapsed_s
        if left <= 0:
            return None
        delay = self.backoff_s(failures, random)
        if retry_after_s is not None and retry_after_s > 0:
            delay = max(delay, min(retry_after_s, MAX_RETRY_AFTER_S))
        return min(delay, left)
