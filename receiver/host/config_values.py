"""Goes through the values of a plugin's checked settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel


def config_values(config: object) -> Iterator[object]:
    """Yield each value, at any depth, that is neither a section nor a collection."""
    match config:
        case BaseModel():
            for name in type(config).model_fields:
                yield from config_values(getattr(config, name))
        case Mapping():
            for value in config.values():
                yield from config_values(value)
        case list() | tuple() | set() | frozenset():
            for value in config:
                yield from config_values(value)
        case _:
            yield config
