"""Every target runs with a fixed seed, and every earlier finding runs again."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.exploration import SEED
from tests.fuzz.fuzzer import Finding, Fuzzer
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from tests.fuzz.workers import fuzz

#: Inputs of a short run, for each target. A target whose inputs take long has fewer.
SHORT: Final = 500
REGRESSIONS = Path(__file__).parent / "regressions"


def regressions() -> Iterator[Path]:
    return REGRESSIONS.glob("*/*.bin")


@pytest.mark.parametrize("file", sorted(regressions()), ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_earlier_findings_stay_fixed(file: Path) -> None:
    TARGETS[file.parent.name].run(file.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run_finds_nothing(name: str) -> None:
    finds_nothing(TARGETS[name], min(TARGETS[name].brief // 4, SHORT), seed="short")


@pytest.mark.full
@pytest.mark.parametrize("name", TARGETS)
def test_a_longer_run_finds_nothing(name: str) -> None:
    finds_nothing(TARGETS[name], TARGETS[name].brief, seed=SEED or "short")


def finds_nothing(target: Target, inputs: int, seed: str) -> None:
    outcomes = list(fuzz([target], inputs=inputs, seed=seed, processes=1))
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    assert not findings, described(findings[0], seed)
    assert sum(outcome.inputs for outcome in outcomes) == inputs
    assert max(outcome.reached for outcome in outcomes) > 50


def described(finding: Finding, seed: str) -> str:
    data = base64.b64encode(finding.data).decode()
    return (
        f"{finding.problem}\nseed {seed}; keep the input, which the gate then replays:\n"
        f"echo {data} | base64 -d > tests/fuzz/regressions/{finding.target}/NAME.bin"
    )


def test_a_finding_says_how_to_keep_it() -> None:
    text = described(Finding(target="wire", data=b"\x00\x01", problem="it broke"), "1a2b")
    assert "it broke" in text
    assert "seed 1a2b" in text
    assert "echo AAE= | base64 -d > tests/fuzz/regressions/wire/NAME.bin" in text


def test_the_same_seed_makes_the_same_inputs() -> None:
    seen: list[list[bytes]] = []
    for _ in range(2):
        inputs: list[bytes] = []
        Fuzzer(TARGETS["proxy"], "seed", inputs.append).run(500)
        seen.append(inputs)
    assert seen[0] == seen[1]
