"""Every target runs with a fixed seed, and every earlier finding runs again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from tests.fuzz.workers import fuzz

#: Inputs of a short run, for each target. A target whose inputs take long has fewer.
SHORT: Final = 1_000
REGRESSIONS = Path(__file__).parent / "regressions"


def regressions() -> Iterator[Path]:
    return REGRESSIONS.glob("*/*.bin")


@pytest.mark.parametrize("file", sorted(regressions()), ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_earlier_findings_stay_fixed(file: Path) -> None:
    TARGETS[file.parent.name].run(file.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run_finds_nothing(name: str) -> None:
    finds_nothing(TARGETS[name], min(TARGETS[name].brief // 4, SHORT))


@pytest.mark.full
@pytest.mark.parametrize("name", TARGETS)
def test_a_longer_run_finds_nothing(name: str) -> None:
    finds_nothing(TARGETS[name], TARGETS[name].brief)


def finds_nothing(target: Target, inputs: int) -> None:
    outcomes = list(fuzz([target], inputs=inputs, seed="short", processes=1))
    problems = [finding.problem for outcome in outcomes for finding in outcome.findings]
    assert not problems, problems[0]
    assert sum(outcome.inputs for outcome in outcomes) == inputs
    assert max(outcome.reached for outcome in outcomes) > 50


def test_the_same_seed_makes_the_same_inputs() -> None:
    seen: list[list[bytes]] = []
    for _ in range(2):
        inputs: list[bytes] = []
        Fuzzer(TARGETS["proxy"], "seed", inputs.append).run(500)
        seen.append(inputs)
    assert seen[0] == seen[1]
