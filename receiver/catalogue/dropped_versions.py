"""The API versions that each version of Kafka has dropped (KIP-896).

``dropped_versions.json`` has them by Kafka version; null: the whole API was dropped. A test
compares it with Kafka's own message definitions.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

_VERSION: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,4})?")


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a version of Kafka no longer has of an API."""

    kafka: str
    """The version that dropped it."""
    lowest: int | None
    """The lowest version since then; None: the API is gone."""
    why: str
    """The KIP."""

    def breaks(self, version: int) -> bool:
        """Return whether a request in a version gets no answer any more."""
        return self.lowest is None or version < self.lowest


def _parsed(version: str) -> tuple[int, int]:
    match = _VERSION.fullmatch(version)
    if match is None:
        raise ValueError("expected a version of Kafka, for example 4.0")
    return int(match[1]), int(match[2])


class DroppedVersions:
    """All that is known of dropped versions.

    Attributes:
        pattern: A regular expression of the versions up to it, for a JSON schema.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.latest: str = document["latest"]
        major, minor = _parsed(self.latest)
        of_latest = "|".join(map(str, range(minor + 1)))
        earlier = "|".join(map(str, range(major)))
        self.pattern: str = rf"^(({earlier})\.[0-9]{{1,4}}|{major}\.({of_latest}))(\.[0-9]{{1,4}})?$"
        self._changes = [(_parsed(change["kafka"]), change) for change in document["changes"]]

    def up_to(self, kafka: str) -> dict[int, Dropped]:
        """Return what a version of Kafka lacks, by API key.

        Raises:
            ValueError: It is no version, or a later one than is known.
        """
        wanted = _parsed(kafka)
        if wanted > _parsed(self.latest):
            raise ValueError(f"this receiver knows Kafka up to {self.latest}")
        return {
            int(key): Dropped(change["kafka"], lowest, change["why"])
            for since, change in self._changes
            if since <= wanted
            for key, lowest in change["lowest"].items()
        }


DROPPED_VERSIONS: Final = DroppedVersions(
    json.loads(resources.files(__package__).joinpath("dropped_versions.json").read_text("utf-8"))
)
