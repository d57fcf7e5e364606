"""The bounds of every array and list of tagged fields that is decoded.

A message may be as long as a frame, and one byte of it may become an object. So each list has a
bound, and so has a whole message: decoding one takes at most some ten milliseconds, whoever sent
it. Texts have Kafka's own bound (:data:`~receiver.wire.writer.MAX_STRING_BYTES`). Other bytes are
as long as the frame, and are not taken apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

#: Most tagged fields of one structure. Kafka 4.4 has at most three.
MAX_TAGGED_FIELDS: Final = 64

#: Most array items and tagged fields of a whole message. They take about 10 ms to read.
MAX_ITEMS: Final = 16_384

#: Most items of each array, by its name in Kafka's message definitions.
ARRAYS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "AcceptedCompressionTypes": 64,
        "ApiKeys": 1_024,  # Kafka 4.4 has 95
        "Brokers": 4_096,
        "Configs": 8_192,  # a broker has some 300
        "ConfigResources": MAX_ITEMS,
        "ConfigurationKeys": 8_192,
        "Coordinators": MAX_ITEMS,  # one for each group or transactional id that was asked for
        "CurrentVoters": 1_024,
        "Entries": 1_024,  # of a refused request
        "Listeners": 64,
        "Mechanisms": 64,
        "Nodes": 1_024,
        "Observers": 8_192,
        "Partitions": 8_192,
        "Renewers": 256,
        "RequestedMetrics": 8_192,
        "ResourceTypes": 256,
        "Resources": MAX_ITEMS,
        "Results": MAX_ITEMS,
        "Synonyms": 256,
        "Tokens": 4_096,
        "Topics": 8_192,
    }
)
