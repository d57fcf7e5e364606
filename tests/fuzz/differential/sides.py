"""The sides that a round is played on, and the names of which each side has its own.

A request that writes must not change what another side reads. So such names hold :data:`SIDE`, and
a topic of the side's own. Templates of requests hold marks of equal length, which each side fills
in; in its answers they are taken out again.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

#: Stands for the side's name.
SIDE: Final = "~~side~~"
#: The topic that only this side writes to.
OWN_TOPIC: Final = f"own-{SIDE}"
#: Stands for the id of that topic.
OWN_TOPIC_ID: Final = b"\x0eown-topic-id-\xfe\xff"
#: Stands for the id of a topic that is only read.
SHARED_TOPIC_ID: Final = b"\x0ereadtopic-id-\xfe\xff"

#: How a side reaches the broker.
Path = Literal["direct", "kept", "rewritten"]
#: What the broker's listener demands.
Listener = Literal["CLIENT", "SASL"]


def side_name(number: int) -> str:
    """Return a side's name: eight characters, with the same hash in Java for all sides.

    Kafka's answers often have the order of a hash map, which so is the same on all sides.
    """
    return "".join("BB" if number >> bit & 1 else "Aa" for bit in range(4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to the broker.

    Attributes:
        path: Whether the gateway is in between, and by which listener.
        name: Its name, by :func:`side_name`.
        ports: Where each listener is.
        topic_ids: What the marks of topic ids stand for.
    """

    path: Path
    name: str
    ports: Mapping[Listener, int]
    topic_ids: Mapping[bytes, bytes]

    def fill(self, template: bytes) -> bytes:
        """Return a request with this side's names."""
        data = template.replace(SIDE.encode(), self.name.encode())
        for mark, topic_id in self.topic_ids.items():
            data = data.replace(mark, topic_id)
        return data

    def clear(self, answer: bytes) -> bytes:
        """Return an answer with the marks in the place of this side's names."""
        own = self.topic_ids[OWN_TOPIC_ID]
        data = answer.replace(self.name.encode(), SIDE.encode())
        return data.replace(own, OWN_TOPIC_ID).replace(_text(own), _text(OWN_TOPIC_ID))


def _text(topic_id: bytes) -> bytes:
    """Return Kafka's text form of an id, which is in messages."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=")
