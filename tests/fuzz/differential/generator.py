"""Generates valid request bodies from Kafka's message definitions."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from tests.fuzz.differential.codec import UNKNOWN_TAGS, Tree
from tests.fuzz.differential.schemas import Api, Field, Struct
from tests.fuzz.differential.values import value

_NULL: Final = 0.15
_TAGGED: Final = 0.3
_UNKNOWN_TAG: Final = 0.04
_LENGTHS: Final = (0, 1, 1, 1, 1, 2, 2, 3)
#: No RPC of Kafka's has so many tags.
_FIRST_UNKNOWN: Final = 100


def generate(api: Api, version: int, random: Random, name: str) -> Tree:
    """Return the body of a request.

    Args:
        api: The RPC.
        version: One of its versions.
        random: Where choices come from.
        name: The round's own name, for groups and transactions.
    """
    return _Generator(api, version, random, name).struct(api.request)


def generate_response(api: Api, version: int, random: Random) -> Tree:
    """Return the body of a response; arguments as above."""
    return _Generator(api, version, random, "name").struct(api.response)


class _Generator:
    def __init__(self, api: Api, version: int, random: Random, name: str) -> None:
        self._api = api
        self._version = version
        self._random = random
        self._name = name

    def struct(self, struct: Struct) -> Tree:
        random = self._random
        plain, tagged = struct.of(self._version)
        tree = {field.name: self._field(field) for field in plain}
        if self._version in self._api.flexible:
            tree |= {field.name: self._field(field) for field in tagged if random.random() < _TAGGED}
            if random.random() < _UNKNOWN_TAG:
                first = _FIRST_UNKNOWN + random.randrange(300)
                tree[UNKNOWN_TAGS] = [
                    (first + number, random.randbytes(random.choice((0, 1, 200)))) for number in range(2)
                ]
        return tree

    def _field(self, field: Field) -> Any:
        random = self._random
        if self._version in field.nullable and random.random() < _NULL:
            return None
        if not field.is_array:
            return self._value(field)
        return [self._value(field) for _ in range(random.choice(_LENGTHS))]

    def _value(self, field: Field) -> Any:
        if field.struct is not None:
            return self.struct(field.struct)
        return value(self._api.key, field, self._random, self._name)
