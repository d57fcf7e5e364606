"""Back-pressure as a control loop: how many times as long clients wait while a destination stays behind.

Owns the factor by which push intervals are longer than asked. It must not know clients or plugins: it is told
how far behind each destination is.

The rule, with the settings' names: where the oldest push that waits for some destination was older than
``behind_s`` for ``step_s`` without a break, the factor is doubled, up to ``max_factor``; where every
destination's was younger than half of ``behind_s`` for ``step_s``, it is halved. In between nothing moves,
and both times begin anew, so that a destination that is just behind or just not does not make clients ask
again and again.
"""

from __future__ import annotations

from collections.abc import Mapping

from receiver.settings.backpressure import BackPressureSettings

__all__ = ["BackPressure"]


class BackPressure:
    """The factor, and why it is what it is.

    Args:
        settings: The rule's numbers, until :meth:`replace_settings`; not enabled, the factor is 1.

    Attributes:
        plugin: The plugin that was furthest behind when the factor was last doubled; None while it is 1.
        lengthened: How many times the factor was doubled.
        shortened: How many times it was halved.
    """

    def __init__(self, settings: BackPressureSettings) -> None:
        self._settings = settings
        self._doublings = 0
        self._behind_since: float | None = None
        self._calm_since: float | None = None
        self.plugin: str | None = None
        self.lengthened = 0
        self.shortened = 0

    @property
    def factor(self) -> int:
        """How many times as long as asked intervals are: 1, 2, 4 ... and ``max_factor`` at most."""
        return min(1 << self._doublings, self._settings.max_factor)

    def replace_settings(self, settings: BackPressureSettings) -> None:
        """Work with other numbers from now on; no longer enabled, the factor is 1 at once."""
        self._settings = settings
        self._doublings = min(self._doublings, self._most_doublings) if settings.enabled else 0
        if not settings.enabled:
            self._behind_since = self._calm_since = self.plugin = None

    def observe(self, lags: Mapping[str, float], now: float) -> int:
        """Look at how far behind destinations are, which has to be done every few seconds.

        Args:
            lags: The age of the oldest push that waits, in seconds, by plugin.
            now: The time in seconds of a monotonic clock.

        Returns:
            The factor from now on.
        """
        settings = self._settings
        if not settings.enabled:
            return 1
        worst = max(lags, key=lags.__getitem__, default="")
        lag_s = lags.get(worst, 0.0)
        self._behind_since = _since(self._behind_since, now) if lag_s > settings.behind_s else None
        self._calm_since = _since(self._calm_since, now) if lag_s < settings.behind_s / 2 else None
        if self._behind_since is not None and now - self._behind_since >= settings.step_s:
            self._behind_since = now
            if self._doublings < self._most_doublings:
                self._doublings += 1
                self.lengthened += 1
                self.plugin = worst
        elif self._calm_since is not None and now - self._calm_since >= settings.step_s:
            self._calm_since = now
            if self._doublings:
                self._doublings -= 1
                self.shortened += 1
                self.plugin = self.plugin if self._doublings else None
        return self.factor

    @property
    def _most_doublings(self) -> int:
        return (self._settings.max_factor - 1).bit_length()


def _since(since: float | None, now: float) -> float:
    return now if since is None else since
