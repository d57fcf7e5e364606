"""The descriptions of settings are the texts below their keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import BaseModel, Field

from receiver.settings.descriptions import descriptions
from receiver.settings.model import ReceiverSettings
from receiver.settings.schema import fields_of, model_of
from spark_streaming.settings import RollupSettings


class _Base(BaseModel):
    inherited: int = 1
    """Of the base."""
    replaced: int = 1
    """Of the base."""


class _Model(_Base):
    replaced: int = 2
    """On two
    lines."""
    from_: int = Field(alias="from")
    """By its alias."""
    plugin: int = Field(default=1, description="Of the Field.")
    without: int = 1

    def method(self) -> None:
        """Is no description."""


def test_a_description_is_the_text_below_the_field() -> None:
    assert descriptions(_Model) == {
        "inherited": "Of the base.",
        "replaced": "On two lines.",
        "from": "By its alias.",
        "plugin": "Of the Field.",
    }


def test_a_model_without_source_has_no_descriptions() -> None:
    space = {"BaseModel": BaseModel, "__name__": "nowhere"}
    exec("class Made(BaseModel):\n    a: int = 1\n    'Text.'\n", space)
    assert descriptions(space["Made"]) == {}


@pytest.mark.parametrize("root", [ReceiverSettings, RollupSettings])
def test_every_key_is_described(root: type[BaseModel]) -> None:
    assert list(_undescribed(root)) == []


def _undescribed(model: type[BaseModel]) -> Iterator[str]:
    for key, annotation, _ in fields_of(model):
        if (inner := model_of(annotation)) is not None:
            yield from _undescribed(inner)
        elif key not in descriptions(model):
            yield f"{model.__name__}.{key}"
