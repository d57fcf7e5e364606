"""Profiles of what clients push: averages by metric, bounded and up to date."""

from __future__ import annotations

import pytest

from receiver.telemetry.profiles import Estimate, MetricProfiles
from tests.unit.telemetry.otlp_parts import gauge, push, resource_metrics

EVERYTHING = ("",)


def pushed(**points: int) -> bytes:
    return push(resource_metrics(*(gauge(name, *[1.0] * count) for name, count in points.items())))


def series(profiles: MetricProfiles, *prefixes: str, software: str = "java") -> float | None:
    found = profiles.estimate(software, prefixes)
    return None if found is None else found.series


def test_nothing_is_known_of_a_software_that_has_not_pushed() -> None:
    profiles = MetricProfiles()
    profiles.sample(pushed(a=1), "java", EVERYTHING, 0.0)
    assert series(profiles, "", software="kgo") is None
    assert series(profiles, "") == 1
    assert profiles.estimate("java", ()) == Estimate()
    assert list(profiles) == ["a"]


def test_one_push_a_second_is_read() -> None:
    profiles = MetricProfiles()
    for now in (0.0, 0.5, 0.9):
        profiles.sample(pushed(**{f"m{now}".replace(".", "_"): 1}), "java", EVERYTHING, now)
    assert list(profiles) == ["m0_0"]
    profiles.sample(pushed(b=1), "java", EVERYTHING, 1.0)
    assert list(profiles) == ["b", "m0_0"]


def test_a_metric_is_averaged_over_the_pushes_that_were_asked_for_it() -> None:
    profiles = MetricProfiles()
    profiles.sample(pushed(a=4, b=2), "java", EVERYTHING, 0.0)
    profiles.sample(pushed(b=4), "java", ("b",), 1.0)
    profiles.sample(b"", "java", EVERYTHING, 2.0)  # nothing matched
    assert series(profiles, "a") == 2
    assert series(profiles, "b") == 2
    assert series(profiles, "") == 4


def test_the_bytes_are_those_of_the_whole_push() -> None:
    profiles = MetricProfiles()
    data = pushed(a=4, b=2)
    profiles.sample(data, "java", EVERYTHING, 0.0)
    whole = profiles.estimate("java", EVERYTHING)
    part = profiles.estimate("java", ("a",))
    assert whole is not None
    assert part is not None
    assert whole.bytes == len(data)
    assert 0 < part.bytes < whole.bytes


def test_profiles_follow_a_software_that_changes() -> None:
    profiles = MetricProfiles()
    for now in range(512):
        profiles.sample(pushed(a=1), "java", EVERYTHING, float(now))
    for now in range(512, 3 * 512):
        profiles.sample(pushed(a=3), "java", EVERYTHING, float(now))
    assert series(profiles, "a") == pytest.approx(3, abs=0.3)


def test_made_up_names_keep_out_no_software() -> None:
    profiles = MetricProfiles()
    for number in range(100):
        profiles.sample(pushed(a=1), f"made-up-{number}", EVERYTHING, float(number))
    profiles.sample(pushed(a=2), "java", EVERYTHING, 100.0)
    profiles.sample(pushed(a=2), "java", EVERYTHING, 101.0)
    for number in range(200):
        profiles.sample(pushed(a=1), f"further-{number}", EVERYTHING, 102.0 + number)
    assert series(profiles, "a") == 2


def test_old_sets_of_prefixes_keep_out_no_new_one() -> None:
    profiles = MetricProfiles()
    for number in range(100):
        profiles.sample(pushed(a=1), "java", (f"p{number}",), float(number))
    for number in range(3):
        profiles.sample(pushed(b=2), "java", EVERYTHING, 100.0 + number)
    assert series(profiles, "b") == 2
    assert len(profiles._profiles["java"].pushes) <= 64


def test_made_up_metrics_keep_out_no_metric() -> None:
    profiles, now = MetricProfiles(), 0.0
    for number in range(2):
        profiles.sample(pushed(**{f"m{number * 4000 + n}": 1 for n in range(4000)}), "java", EVERYTHING, now)
        now += 1
    for _ in range(4_000):
        profiles.sample(pushed(a=2), "java", EVERYTHING, now)
        now += 1
    assert series(profiles, "a") == pytest.approx(2, rel=0.05)
    assert list(profiles) == ["a"]


def test_everything_is_bounded() -> None:
    profiles = MetricProfiles()
    for number in range(70):
        profiles.sample(pushed(a=1), f"software-{number}", EVERYTHING, float(number))
    kept = [number for number in range(70) if series(profiles, "a", software=f"software-{number}")]
    assert len(kept) == 64
    for number in range(70):
        profiles.sample(pushed(a=1), "java", (f"p{number}",), 100.0 + number)
    assert series(profiles, "p") == series(profiles, "x")  # neither was pushed
    profiles.sample(pushed(**{"n" * 257: 1}), "software-1", EVERYTHING, 200.0)
    for number in range(2):
        many = {f"m{number * 4000 + n}": 1 for n in range(4000)}
        profiles.sample(pushed(**many), "software-2", EVERYTHING, 300.0 + number)
    assert len(list(profiles)) == 4096 + 1  # and the one of others
    profiles.sample(b"\0" * 262_145, "software-3", EVERYTHING, 400.0)
