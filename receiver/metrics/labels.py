"""Bounds the metric labels that clients choose: their number and length.

Prometheus keeps a series for every label value, and KIP-511 lets a client send any text as software
name and version. The first values up to a bound keep their own label, and all others share one.
"""

from __future__ import annotations

from receiver.telemetry.identity import UNKNOWN

#: The label of every name or version beyond the bound.
OTHER = "other"

#: Names that real clients send; they are outside the bound.
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

#: Kafka's SASL mechanisms, and ``TLS`` for a client certificate.
MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "TLS"})

_MAX_LENGTH = 100


def mechanism_label(mechanism: str) -> str:
    """Return the label of a login mechanism; :data:`OTHER` for an unknown one."""
    return mechanism if mechanism in MECHANISMS else OTHER


class SoftwareLabels:
    """Turns software names and versions into a bounded number of labels."""

    def __init__(self, *, max_names: int = 100, max_versions: int = 500) -> None:
        self._max_names = max_names
        self._max_versions = max_versions
        self._names: set[str] = set()
        self._versions: set[tuple[str, str]] = set()

    def name(self, client_software_name: str) -> str:
        """Return the label of a software name; :data:`OTHER` beyond the bound."""
        if client_software_name in self._names or client_software_name in KNOWN_SOFTWARE:
            return client_software_name
        if len(client_software_name) > _MAX_LENGTH or len(self._names) >= self._max_names:
            return OTHER
        self._names.add(client_software_name)
        return client_software_name

    def name_and_version(self, client_software_name: str, client_software_version: str) -> tuple[str, str]:
        """Return the labels of a software version; :data:`OTHER` beyond the bound."""
        pair = (self.name(client_software_name), client_software_version)
        if pair in self._versions:
            return pair
        if len(client_software_version) > _MAX_LENGTH or len(self._versions) >= self._max_versions:
            return (pair[0], OTHER)
        self._versions.add(pair)
        return pair
