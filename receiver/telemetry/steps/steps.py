"""Builds the steps from the settings, once for each set of known-bad metrics."""

from __future__ import annotations

from typing import Final

from receiver.catalogue import CATALOGUE
from receiver.settings.metric_processing import NormalizationSettings, PrivacySettings
from receiver.telemetry.steps.metrics import MetricSteps
from receiver.telemetry.steps.privacy import Privacy


class Steps:
    """The configured steps, and the privacy rules for the receiver's labels."""

    def __init__(
        self, normalization: NormalizationSettings, privacy: PrivacySettings, key: bytes | None
    ) -> None:
        self._normalization: Final = normalization
        self.privacy: Final = Privacy(privacy, key)
        self._by_bad_metrics: dict[tuple[str, ...], MetricSteps] = {}

    def for_client(self, bad_metrics: tuple[str, ...]) -> MetricSteps:
        """Return the steps for clients with these known-bad metrics (RE2, whole names)."""
        steps = self._by_bad_metrics.get(bad_metrics)
        if steps is None:
            steps = self._by_bad_metrics[bad_metrics] = MetricSteps(
                self._normalization, self.privacy, CATALOGUE, bad_metrics
            )
        return steps


#: No steps except the series budget.
NO_STEPS: Final = Steps(
    NormalizationSettings(attributes=False, units=False, known_bad_values="keep"), PrivacySettings(), None
).for_client(())
