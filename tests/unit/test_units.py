"""Sizes and times with units become numbers of their key's unit."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from spark_streaming.units import example, quantity, with_units


class Inner(BaseModel):
    timeout_ms: int = 1
    linger_s: Annotated[float, Field(ge=0)] | None = None
    after_ms: str = ""


class Outer(BaseModel):
    max_bytes: int | None = None
    from_bytes: int = Field(default=1, alias="alias_bytes")
    one: Inner | None = None
    many: tuple[Inner, ...] = ()
    limit: int = 1


@pytest.mark.parametrize(
    ("text", "key", "number"),
    [
        ("64MiB", "max_bytes", 67_108_864),
        ("1.5 kB", "max_bytes", 1_500),
        ("2GB", "rejected_bytes_per_minute", 2_000_000_000),
        ("7B", "max_bytes", 7),
        ("30s", "timeout_ms", 30_000),
        ("1500ms", "timeout_s", 1.5),
        ("2m", "trigger_seconds", 120),
        ("1h", "timeout_ms", 3_600_000),
        ("2d", "contribution_hours", 48),
        ("36h", "push_days", 1.5),
        ("30", "timeout_ms", None),
        ("30s", "max_bytes", None),
        ("64MiB", "timeout_ms", None),
        ("30S", "timeout_ms", None),
        ("-30s", "timeout_ms", None),
        ("30s", "limit", None),
        ("", "timeout_ms", None),
    ],
)
def test_a_text_with_a_unit_is_a_number(text: str, key: str, number: float | None) -> None:
    assert quantity(text, key) == number


def test_numbers_at_any_depth_are_converted_and_texts_stay() -> None:
    inner = {"timeout_ms": "2s", "linger_s": "500ms", "after_ms": "5s"}
    given: dict[str, Any] = {
        "max_bytes": "1KiB",
        "alias_bytes": "1kB",
        "one": inner,
        "many": [inner],
        "limit": "5s",
        "unknown_ms": "5s",
    }
    read = {"timeout_ms": 2_000, "linger_s": 0.5, "after_ms": "5s"}
    assert with_units(given, Outer) == {
        "max_bytes": 1_024,
        "alias_bytes": 1_000,
        "one": read,
        "many": [read],
        "limit": "5s",
        "unknown_ms": "5s",
    }
    assert inner["timeout_ms"] == "2s"


def test_what_is_no_whole_number_stays_for_the_error() -> None:
    assert with_units({"timeout_ms": "0.5ms"}, Inner) == {"timeout_ms": "0.5ms"}
    assert with_units({"max_bytes": 5, "one": None, "many": "x"}, Outer) == {
        "max_bytes": 5,
        "one": None,
        "many": "x",
    }


def test_an_error_shows_an_example() -> None:
    assert (example("max_bytes"), example("timeout_ms"), example("limit")) == ("64MiB", "30s", "")
