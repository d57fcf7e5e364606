"""Grammar of hostile OTLP pushes, encoded byte by byte.

A push is made of one or two features, each an attack's idea. Many pushes are then made of one
:class:`Skeleton` by writing other times and values into it, because a push costs less than its
grammar.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from receiver.telemetry.labels import OWNED_LABELS
from tests.fuzz import protobuf
from tests.fuzz.mutation import Mutator
from tests.fuzz.pipeline import collisions
from tests.fuzz.pipeline.identities import CLUSTER_ID, IDENTITIES, Identity
from tests.fuzz.protobuf import varint
from tests.unit.telemetry.parts import ALL_PAYLOADS, payload

#: Placeholders in a skeleton for the push's time and for a value, eight bytes each.
TIME_MARK: Final = b"\x8fTime\xa7\xb3\x01"
VALUE_MARK: Final = b"\x8fValu\xa7\x33\x40"

FEATURES: Final = (
    "labels",
    "numbers",
    "times",
    "text",
    "oneof",
    "nesting",
    "kvlists",
    "histograms",
    "cumulative",
    "wire",
    "bytes",
    "points",
    "collisions",
    "captured",
)

_NAMES: Final = (
    "org.apache.kafka.producer.connection.creation.total",
    "org.apache.kafka.consumer.coordinator.assigned.partitions",
    "org.apache.kafka.producer.node.request.latency.avg",
    "org.apache.kafka.producer.produce.throttle.time.max",
    "org.apache.kafka.producer.record.send.total",
    "my.orders.total",
    "latency",
    "my.own.rate",
    "my.own.max",
    "my.own.min",
    "kafka.client.telemetry.clients",
    "kafka.client.telemetry.pushes",
    "up",
)
_ODD_NAMES: Final = (b"", b"\0", b"a\0b", b"x" * 600, b"\xf0\x9f\x98\x80" * 90, b"\xff\xfe", b"\xed\xa0\x80")
_KEYS: Final = (b"topic", b"node_id", b"node.id", b"node_role", b"partition", b"group_id", b"client_rack")
_TOPICS: Final = (b"orders", b"payments", b"", b"a", b"orders\0", b"x" * 249)

#: Ways to write the key of a label so that a careless reader takes it for the label.
_VARIANTS: Final[tuple[Callable[[str], str], ...]] = (
    lambda key: key,
    lambda key: key.replace("_", "."),
    lambda key: key.replace("_", "-"),
    lambda key: key.replace("_", "__"),
    lambda key: key.upper(),
    lambda key: f"kafka.{key}",
    lambda key: f" {key}",
    lambda key: f"{key}\0",
    lambda key: f"{key}\u200b",
    lambda key: f"\0{key}",
    lambda key: f"{key}.{key}",
)
_OTHER_KEYS: Final = ("service.name", "service.instance.id", "job", "instance", "host.name", "__name__")
_CLAIMED_KEYS: Final = (
    *(variant(key).encode() for key in OWNED_LABELS for variant in _VARIANTS),
    *(key.encode() for key in _OTHER_KEYS),
)
_VICTIM: Final = IDENTITIES[0]
_CLAIMED: Final[Mapping[str, str]] = {
    "client_id": _VICTIM.client_id,
    "principal": _VICTIM.principal,
    "client_software_name": _VICTIM.software[0],
    "client_software_version": _VICTIM.software[1],
    "client_source_address": _VICTIM.address,
    "cluster_id": CLUSTER_ID,
}

_DOUBLES: Final = (
    *(0.0, -0.0, 1e12, -1e12, 9.9e299, -9.9e299, 1e300, 1.7976931348623157e308, -1.7976931348623157e308),
    *(5e-324, 1e-301, float("nan"), float("inf"), float("-inf"), 2.0**53, 2.0**63, 2.0**64),
)
_INTEGERS: Final = (0, 1, -1, (1 << 63) - 1, -(1 << 63), 1 << 40, (1 << 40) + 1, 1 << 53)
_COUNTS: Final = (0, 1, 7, (1 << 40) - 1, 1 << 40, 1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_TIMES: Final = (
    0,
    1,
    60_000_000_000,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
    253_402_300_800_000_000_000 >> 7,
)
_OFFSETS: Final = (0, 1, -1, 7, -100, 5000, (1 << 31) - 1, -(1 << 31))

_GAUGE, _SUM, _HISTOGRAM, _EXPONENTIAL, _SUMMARY = 5, 7, 9, 10, 11
_KINDS: Final = (_GAUGE, _SUM, _SUM, _HISTOGRAM, _EXPONENTIAL, _SUMMARY)
_MAX_BYTES: Final = 4096
_LARGE: Final = 0.01
_BOMB_POINTS: Final = 9_000
_TOKENS: Final = (
    *(key.encode() for key in OWNED_LABELS),
    b"\x0a\x00",
    b"\x12\x00",
    b"\x32\x00",
    b"\x21\x00\x00\x00\x00\x00\x00\xf8\x7f",
    b"\x20" + b"\xff" * 9 + b"\x01",
    TIME_MARK,
    VALUE_MARK,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skeleton:
    """A push with room for times and values.

    Attributes:
        features: What it is made of.
        data: Its bytes.
        times: Where its times stand, each of eight bytes.
        values: Where its values stand, likewise.
    """

    features: tuple[str, ...]
    data: bytes
    times: tuple[int, ...] = field(init=False)
    values: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", _places(TIME_MARK, self.data))
        object.__setattr__(self, "values", _places(VALUE_MARK, self.data))

    def push(self, time_ns: int, value: float) -> bytes:
        """Make a push."""
        data = bytearray(self.data)
        for at in self.times:
            _PACK_TIME(data, at, time_ns)
        for at in self.values:
            _PACK_VALUE(data, at, value)
        return bytes(data)


_PACK_TIME: Final = struct.Struct("<Q").pack_into
_PACK_VALUE: Final = struct.Struct("<d").pack_into


def _places(mark: bytes, data: bytes) -> tuple[int, ...]:
    return tuple(found.start() for found in re.finditer(re.escape(mark), data))


def message(number: int, content: bytes) -> bytes:
    """Write a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def fixed64(number: int, content: bytes) -> bytes:
    """Write a field of eight bytes."""
    return varint(number << 3 | 1) + content


def integer(number: int, value: int) -> bytes:
    """Write a varint field."""
    return varint(number << 3) + varint(value % (1 << 64))


def zigzag(number: int, value: int) -> bytes:
    """Write a field of type sint32."""
    return integer(number, value << 1 ^ value >> 63)


def bomb() -> Skeleton:
    """Make a push of many histograms whose counts soon overflow 64 bits."""
    counts = message(6, struct.pack("<2Q", (1 << 64) - 1, (1 << 64) - 1)) + message(7, struct.pack("<d", 1.0))
    point = fixed64(3, TIME_MARK) + fixed64(4, b"\xff" * 8) + fixed64(5, VALUE_MARK) + counts
    histogram = message(1, point) * _BOMB_POINTS + integer(2, 1)
    metric = message(1, b"latency") + message(9, histogram)
    return Skeleton(features=("bomb",), data=message(1, message(2, message(2, metric))))


class Grammar:
    """Makes skeletons.

    Args:
        random: Every choice comes from it.
        features: What pushes are made of; all by default.
    """

    def __init__(self, random: Random, features: Sequence[str] = FEATURES) -> None:
        self._random = random
        self._offered = tuple(features)
        self._on: frozenset[str] = frozenset()
        self._identity = _VICTIM
        self._mutator = Mutator(random, _TOKENS, _MAX_BYTES)

    def skeleton(self, identity: Identity) -> Skeleton:
        """Make a skeleton for pushes of this client."""
        random = self._random
        self._identity = identity
        chosen = tuple(sorted(set(random.choices(self._offered, k=random.choice((1, 1, 2))))))
        self._on = frozenset(chosen)
        data = self._captured() if "captured" in chosen else self._push()
        if "wire" in chosen:
            for _ in range(random.choice((1, 1, 2, 4))):
                data = protobuf.reshape(data, random, _TOKENS)[:_MAX_BYTES]
        if "bytes" in chosen:
            data = self._mutator.mutate(data, data)
        if TIME_MARK not in data:
            # An unknown field makes each push different, if the bytes are OTLP.
            data += fixed64(15, TIME_MARK)
        return Skeleton(features=chosen, data=data)

    def _captured(self) -> bytes:
        if self._is_large():
            return payload(self._random.choice(ALL_PAYLOADS))
        return payload(self._random.choice(ALL_PAYLOADS))[: self._random.choice((64, 512, 1024))]

    def _is_large(self) -> bool:
        """Return whether to make something large, which is rare to save time."""
        return self._random.random() < _LARGE

    def _push(self) -> bytes:
        count = self._random.choice((1, 1, 1, 1, 2))
        return b"".join(message(1, self._resource_metrics()) for _ in range(count))

    def _resource_metrics(self) -> bytes:
        random = self._random
        resource = b"" if random.random() < 0.2 else message(1, self._resource())
        if "oneof" in self._on and resource:
            resource += message(1, self._resource())  # protobuf merges the two
        scopes = b"".join(message(2, self._scope_metrics()) for _ in range(random.choice((1, 1, 1, 2))))
        return scopes + resource if random.random() < 0.2 else resource + scopes

    def _resource(self) -> bytes:
        random = self._random
        attributes = [self._attribute(random.choice(_KEYS)) for _ in range(random.choice((0, 0, 1, 2)))]
        if "labels" in self._on:
            attributes += [self._claim() for _ in range(random.choice((1, 2)))]
        return b"".join(message(1, attribute) for attribute in attributes)

    def _claim(self) -> bytes:
        """An attribute that claims to be one of the receiver's labels."""
        random = self._random
        key = random.choice(_CLAIMED_KEYS)
        label = (
            key.decode().strip("\0 \u200b").lower().replace(".", "_").replace("-", "_").removeprefix("kafka_")
        )
        value = _CLAIMED.get(label, "forged") if random.random() < 0.6 else "forged"
        text = message(1, value.encode())
        choice = random.random()
        if choice < 0.1:  # two keys, of which the last counts
            return message(1, b"other") + message(1, key) + message(2, text)
        if choice < 0.2:  # two values
            return message(1, key) + message(2, message(1, b"other")) + message(2, text)
        if choice < 0.3:  # the value first, the key in a length of more bytes than needed
            return message(2, text) + b"\x0a" + varint(len(key), 2) + key
        if choice < 0.35:
            return message(1, key) + message(2, message(5, message(1, text)))
        return message(1, key) + message(2, text)

    def _scope_metrics(self) -> bytes:
        random = self._random
        scope = b""
        if random.random() < 0.3:
            scope = message(
                1, message(1, b"scope") + (message(3, self._claim()) if "labels" in self._on else b"")
            )
        count = random.choice((1, 1, 1, 2))
        return scope + b"".join(message(2, self._metric()) for _ in range(count))

    def _metric(self) -> bytes:
        random = self._random
        name = random.choice(_NAMES).encode()
        if "text" in self._on and random.random() < 0.3:
            name = random.choice(_ODD_NAMES)
        kind = random.choice(_KINDS)
        if "histograms" in self._on:
            kind = random.choice((_HISTOGRAM, _EXPONENTIAL, _SUMMARY))
        elif "cumulative" in self._on:
            kind = _SUM
        elif "collisions" in self._on:
            return self._colliding()
        data = message(kind, self._data(kind))
        if "oneof" in self._on:
            kinds = random.choices(_KINDS, k=random.choice((1, 2)))
            data = b"".join(message(other, self._data(other)) for other in kinds) + data
        return message(1, name) + data

    def _data(self, kind: int) -> bytes:
        random = self._random
        count = random.choice((1, 1, 1, 1, 2))
        if "points" in self._on:
            count = 40 if self._is_large() else random.choice((0, 3, 6))
        points = b"".join(message(1, self._point(kind)) for _ in range(count))
        temporality = b""
        if kind in (_SUM, _HISTOGRAM, _EXPONENTIAL):
            value = 2 if "cumulative" in self._on else random.choice((1, 1, 1, 2, 0, 7))
            temporality = integer(2, value)
            if "oneof" in self._on:
                temporality = integer(2, random.choice((0, 1, 2))) + temporality
        monotonic = integer(3, int(random.random() < 0.8)) if kind == _SUM else b""
        return points + temporality + monotonic

    def _colliding(self) -> bytes:
        """Make a point whose XXH64 series id equals that of the victim's series."""
        name, topic = collisions.colliding(self._identity, _VICTIM)
        attribute = message(1, b"topic") + message(2, message(1, topic))
        point = fixed64(3, TIME_MARK) + fixed64(4, VALUE_MARK) + message(7, attribute)
        return message(1, name) + message(_SUM, message(1, point) + integer(2, 1) + integer(3, 1))

    def _point(self, kind: int) -> bytes:
        random = self._random
        times = fixed64(3, self._time())
        if random.random() < 0.3 or "cumulative" in self._on:
            times = fixed64(2, self._time()) + times
        attribute_field = 9 if kind == _HISTOGRAM else 1 if kind == _EXPONENTIAL else 7
        count = random.choice((0, 1, 1, 2))
        attributes = [self._attribute(random.choice(_KEYS)) for _ in range(count)]
        if "labels" in self._on:
            attributes.append(self._claim())
        body = b"".join(message(attribute_field, attribute) for attribute in attributes) + times
        if kind in (_GAUGE, _SUM):
            values = self._number()
            if "oneof" in self._on:
                values = b"".join(self._number() for _ in range(9 if self._is_large() else 2))
            return body + values
        body += fixed64(4, struct.pack("<Q", self._count())) + fixed64(5, self._double())
        return (
            body
            + {_HISTOGRAM: self._explicit, _EXPONENTIAL: self._exponential, _SUMMARY: self._summary}[kind]()
        )

    def _explicit(self) -> bytes:
        random = self._random
        size = random.choice((0, 1, 3, 20)) if "histograms" in self._on else 1
        bounds = range(size) if random.random() < 0.8 else [random.choice((0, 1, -1, 2)) for _ in range(size)]
        counts = [self._count() for _ in range(size + random.choice((1, 1, 1, 0, 2)))]
        return (
            message(6, struct.pack(f"<{len(counts)}Q", *counts))
            + message(7, struct.pack(f"<{size}d", *bounds))
            + fixed64(11, self._double())
            + fixed64(12, self._double())
        )

    def _exponential(self) -> bytes:
        random = self._random
        sides = b""
        for number in (8, 9):
            counts = [self._count() for _ in range(random.choice((0, 1, 3, 20)))]
            packed = message(2, b"".join(map(varint, counts)))
            sides += message(number, zigzag(1, random.choice(_OFFSETS)) + packed)
        scale = random.choice((0, 1, 3, 4, 20, -1, -10, -11, (1 << 31) - 1, -(1 << 31)))
        return (
            zigzag(6, scale)
            + fixed64(7, struct.pack("<Q", self._count()))
            + sides
            + fixed64(14, self._double())
        )

    def _summary(self) -> bytes:
        pairs = [
            fixed64(1, struct.pack("<d", quantile)) + fixed64(2, self._double())
            for quantile in self._random.sample((0.0, -0.0, 0.5, 0.99, 1.0, 2.0), k=2)
        ]
        return b"".join(message(6, pair) for pair in pairs)

    def _time(self) -> bytes:
        if "times" in self._on and self._random.random() < 0.6:
            return struct.pack("<Q", self._random.choice(_TIMES))
        return TIME_MARK

    def _number(self) -> bytes:
        random = self._random
        if "numbers" in self._on and random.random() < 0.7:
            if random.random() < 0.5:
                return fixed64(6, struct.pack("<q", random.choice(_INTEGERS)))
            return fixed64(4, struct.pack("<d", random.choice(_DOUBLES)))
        return fixed64(4, VALUE_MARK)

    def _double(self) -> bytes:
        if "numbers" in self._on:
            return struct.pack("<d", self._random.choice(_DOUBLES))
        return VALUE_MARK

    def _count(self) -> int:
        return self._random.choice(_COUNTS) if "numbers" in self._on else self._random.randrange(5)

    def _attribute(self, key: bytes) -> bytes:
        random = self._random
        if "text" in self._on:
            key = random.choice(
                (key, key, self._long(b"k"), b"\0", b"", b"topic\0", b"\xc3", b"\xf4\x90\x80\x80")
            )
        return message(1, key) + message(2, self._value())

    def _value(self) -> bytes:
        random = self._random
        if "kvlists" in self._on:
            return self._many_lists()
        if "nesting" in self._on:
            return self._nested(random.choice((60, 90, 99, 120) if self._is_large() else (3, 9, 20)))
        if "text" in self._on:
            text = (
                b"\0",
                self._long(b"x"),
                b"\xff",
                b"\xed\xa0\x80",
                b"a\xe2\x80\xaeb",
                b"\xef\xbf\xbf",
                b"\x1b[31m",
            )
            return message(1, random.choice(text))
        if "oneof" in self._on:
            return b"".join(self._scalar() for _ in range(30 if self._is_large() else 3))
        return message(1, random.choice(_TOPICS))

    def _long(self, text: bytes) -> bytes:
        return text * (5000 if self._is_large() else self._random.choice((60, 60, 60, 513)))

    def _scalar(self) -> bytes:
        random = self._random
        return random.choice(
            (
                message(1, random.choice(_TOPICS)),
                integer(2, random.choice((0, 1, 2))),
                integer(3, random.choice(_INTEGERS)),
                fixed64(4, struct.pack("<d", random.choice(_DOUBLES))),
                message(5, message(1, message(1, b"a"))),
                message(6, message(1, message(1, b"k") + message(2, message(1, b"v")))),
                message(7, b"\xff\0"),
            )
        )

    def _many_lists(self) -> bytes:
        """Make pieces of one list or map, which a naive parser merges quadratically."""
        random = self._random
        count = 400 if self._is_large() else random.choice((2, 5, 20))
        if random.random() < 0.3:
            return b"".join(message(5, message(1, message(1, b""))) for _ in range(count))
        keys = (b"k%d" % (number % 200) for number in range(count))
        return b"".join(message(6, message(1, message(1, key))) for key in keys)

    def _nested(self, depth: int) -> bytes:
        value = message(1, b"deep")
        for _ in range(depth):
            if self._random.random() < 0.5:
                value = message(5, message(1, value))
            else:
                value = message(6, message(1, message(1, b"k") + message(2, value)))
        return value
