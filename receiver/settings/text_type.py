"""What types of settings share that are written as text."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class TextType:
    """A value written as text: :meth:`parse` reads it, ``str`` writes it."""

    __slots__ = ()

    EXPECTED: ClassVar[str]
    """What a value that is no text should have been."""
    PATTERN: ClassVar[str]
    """The form of the text, for JSON schemas; :meth:`parse` checks more."""

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """Parse a text, or raise ValueError."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate from text or from an instance, and serialise as text."""
        return core_schema.no_info_plain_validator_function(
            cls._validate, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the form of the text."""
        return {"type": "string", "pattern": cls.PATTERN}

    @classmethod
    def _validate(cls, value: Any) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            raise ValueError(cls.EXPECTED)
        return cls.parse(value)
