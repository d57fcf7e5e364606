"""Software versions and version ranges."""

from __future__ import annotations

import pytest

from receiver.telemetry.versions import VersionRange, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("4.4.0", (4, 4)),
        ("4.4", (4, 4)),
        ("2.10.1", (2, 10, 1)),
        ("v1.22.2", (1, 22, 2)),
        ("2.16.1-rdkafka-2.16.0", (2, 16, 1)),
        ("3.9.1-SNAPSHOT", (3, 9, 1)),
        ("0.0.0", ()),
        ("unknown", None),
        ("", None),
        ("9" * 5000, None),
        ("1." * 5000, (1, 1, 1, 1, 1, 1, 1, 1)),
    ],
)
def test_the_leading_numbers_of_a_version(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("bounds", "inside", "outside"),
    [
        (">=2.5.0,<=2.5.2", ["2.5", "2.5.0", "2.5.2", "2.5.1-rc1"], ["2.4.9", "2.5.3", "2.10.0", "unknown"]),
        (">=2.5,<2.10.1", ["2.9.9", "2.10.0", "2.10"], ["2.10.1", "2.11"]),
        ("=2.5", ["2.5.0"], ["2.5.1"]),
        ("==2.5.0", ["2.5"], ["2.50"]),
        ("> 2 , < 3", ["2.0.1"], ["2", "2.0.0", "3"]),
        (">9", ["10"], ["9", "8.99"]),
    ],
)
def test_ranges_compare_number_by_number(bounds: str, inside: list[str], outside: list[str]) -> None:
    versions = VersionRange(bounds)
    assert VersionRange.looks_like(bounds)
    assert [text for text in [*inside, *outside] if parse_version(text) in versions] == inside


@pytest.mark.parametrize("bounds", [">=", ">=a", ">=1,", ">=1 <2", "=>1", ">=1.x"])
def test_an_invalid_range_is_refused(bounds: str) -> None:
    with pytest.raises(ValueError, match="is no bound such as"):
        VersionRange(bounds)


def test_a_pattern_does_not_look_like_a_range() -> None:
    assert not any(VersionRange.looks_like(text) for text in ("", ".*", r"4\.4\..*", "4.4.0"))
