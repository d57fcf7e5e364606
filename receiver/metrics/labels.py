"""Labels that a client chooses, made safe to count by: a bounded number of short values.

Owns the bound. Every label value is a series that Prometheus keeps, and a client's software name and version
are any text that KIP-511 lets it send: the first so many are kept, and the rest share one.
"""

from __future__ import annotations

from receiver.telemetry.connection import UNKNOWN

__all__ = ["KNOWN_SOFTWARE", "MECHANISMS", "OTHER", "SoftwareLabels", "mechanism_label"]

#: The label of every name or version beyond the bound.
OTHER = "other"

#: Names that real clients send: they have their place whatever else was seen before.
KNOWN_SOFTWARE = frozenset(
    {
        UNKNOWN,
        "apache-kafka-java",
        "confluent-kafka-dotnet",
        "confluent-kafka-go",
        "confluent-kafka-javascript",
        "confluent-kafka-python",
        "dekaf",
        "kafka-python",
        "kgo",
        "librdkafka",
        "sarama",
    }
)

#: The SASL mechanisms that Kafka has, and a certificate.
MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "TLS"})

_MAX_LENGTH = 100


def mechanism_label(mechanism: str) -> str:
    """The label of a way to log in: itself, or :data:`OTHER` where it is none of :data:`MECHANISMS`."""
    return mechanism if mechanism in MECHANISMS else OTHER


class SoftwareLabels:
    """Turns software names and versions into labels, at most so many different ones while the process runs.

    Args:
        max_names: Distinct names besides :data:`KNOWN_SOFTWARE`.
        max_versions: Distinct pairs of name and version.
    """

    def __init__(self, *, max_names: int = 100, max_versions: int = 500) -> None:
        self._max_names = max_names
        self._max_versions = max_versions
        self._names: set[str] = set()
        self._versions: set[tuple[str, str]] = set()

    def name(self, client_software_name: str) -> str:
        """The label of a software name: itself, or :data:`OTHER` where there is no room for it."""
        if client_software_name in self._names or client_software_name in KNOWN_SOFTWARE:
            return client_software_name
        if len(client_software_name) > _MAX_LENGTH or len(self._names) >= self._max_names:
            return OTHER
        self._names.add(client_software_name)
        return client_software_name

    def name_and_version(self, client_software_name: str, client_software_version: str) -> tuple[str, str]:
        """The labels of a software and its version: themselves, or :data:`OTHER` where there is no room."""
        pair = (self.name(client_software_name), client_software_version)
        if pair in self._versions:
            return pair
        if len(client_software_version) > _MAX_LENGTH or len(self._versions) >= self._max_versions:
            return (pair[0], OTHER)
        self._versions.add(pair)
        return pair
