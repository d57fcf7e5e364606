"""Back-pressure: lengthens push intervals while a destination is behind.

Owns the factor on push intervals. The caller reports how far behind each destination is.

The rule, by settings: when the oldest waiting push of some destination was older than ``behind_s``
for ``step_s`` without a break, the factor doubles, up to ``max_factor``. When the oldest pushes of
all destinations were younger than half of ``behind_s`` for ``step_s``, it halves. In between, the
factor stays and both times restart, so that a destination near the threshold does not change the
clients' intervals again and again.
"""

from __future__ import annotations

from collections.abc import Mapping

from receiver.settings.backpressure import BackPressureSettings


class BackPressure:
    """The factor on push intervals, 1 while ``telemetry.backpressure`` is disabled."""

    def __init__(self, settings: BackPressureSettings) -> None:
        self._settings = settings
        self._doublings = 0
        self._behind_since: float | None = None
        self._calm_since: float | None = None
        #: The plugin furthest behind at the last doubling; None while the factor is 1.
        self.plugin: str | None = None
        self.lengthened = 0  # how many times the factor doubled
        self.shortened = 0  # how many times it halved

    @property
    def factor(self) -> int:
        """The factor on push intervals: 1, 2, 4 ..., at most ``max_factor``."""
        return min(1 << self._doublings, self._settings.max_factor)

    def replace_settings(self, settings: BackPressureSettings) -> None:
        """Replace the settings; disabling resets the factor to 1."""
        self._settings = settings
        self._doublings = min(self._doublings, self._max_doublings) if settings.enabled else 0
        if not settings.enabled:
            self._behind_since = self._calm_since = self.plugin = None

    def observe(self, lags: Mapping[str, float], now: float) -> int:
        """Update the factor, every few seconds, and return it.

        ``lags`` has the age of the oldest waiting push in seconds, by plugin.
        """
        settings = self._settings
        if not settings.enabled:
            return 1
        worst = max(lags, key=lags.__getitem__, default="")
        lag_s = lags.get(worst, 0.0)
        behind_since = now if self._behind_since is None else self._behind_since
        calm_since = now if self._calm_since is None else self._calm_since
        self._behind_since = behind_since if lag_s > settings.behind_s else None
        self._calm_since = calm_since if lag_s < settings.behind_s / 2 else None
        if self._behind_since is not None and now - self._behind_since >= settings.step_s:
            self._behind_since = now
            if self._doublings < self._max_doublings:
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
    def _max_doublings(self) -> int:
        return (self._settings.max_factor - 1).bit_length()
