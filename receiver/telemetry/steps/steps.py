"""All steps as they are configured.

Owns the one place that the settings are read in. It must not do a step.
"""

from __future__ import annotations

from typing import Final

from receiver.catalogue import CATALOGUE
from receiver.settings.metric_processing import NormalizationSettings, PrivacySettings
from receiver.telemetry.steps.metrics import MetricSteps
from receiver.telemetry.steps.privacy import Privacy

__all__ = ["NO_STEPS", "Steps"]


class Steps:
    """The steps of one receiver.

    Args:
        normalization: ``telemetry.normalization``.
        privacy: ``telemetry.privacy``.
        key: The bytes of ``telemetry.privacy.key_file``; None where nothing is hashed.

    Attributes:
        privacy: What may be forwarded, also of the receiver's labels.

    Raises:
        PrivacyError: Something is to be hashed, and the key is missing or too short.
    """

    __slots__ = ("_by_bad_metrics", "_normalization", "privacy")

    def __init__(
        self, normalization: NormalizationSettings, privacy: PrivacySettings, key: bytes | None
    ) -> None:
        self._normalization: Final = normalization
        self.privacy: Final = Privacy(privacy, key)
        self._by_bad_metrics: dict[tuple[str, ...], MetricSteps] = {}

    def of(self, bad_metrics: tuple[str, ...]) -> MetricSteps:
        """Return the steps for clients that get the metrics wrong whose names match these patterns (RE2)."""
        steps = self._by_bad_metrics.get(bad_metrics)
        if steps is None:
            steps = self._by_bad_metrics[bad_metrics] = MetricSteps(
                self._normalization, self.privacy, CATALOGUE, bad_metrics
            )
        return steps


#: Leaves every metric as it is, but for those over a budget.
NO_STEPS: Final = Steps(
    NormalizationSettings(attributes=False, units=False, known_bad_values="keep"), PrivacySettings(), None
).of(())
