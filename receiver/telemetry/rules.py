"""Compiled rules of a configuration: quirks, steps and folding of client ids."""

from __future__ import annotations

from receiver.settings.model import TelemetrySettings
from receiver.telemetry.folding import ClientIdFolding
from receiver.telemetry.quirks import Quirks
from receiver.telemetry.steps.steps import Steps


class Rules:
    """What the telemetry core does by one configuration.

    Args:
        hash_key: The content of ``telemetry.privacy.key``; None when nothing is hashed.

    Raises:
        InvalidValueError: A rule or the key for hashes is invalid.
    """

    def __init__(self, settings: TelemetrySettings, hash_key: bytes | None = None) -> None:
        self.settings = settings
        self.quirks = Quirks(settings.quirks, compression=settings.compression)
        self.steps = Steps(settings.normalization, settings.privacy, hash_key)
        self.folding = ClientIdFolding(settings.series.client_id_folding)
