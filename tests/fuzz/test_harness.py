"""The harness finds planted defects of each kind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.fuzzer import Finding, Fuzzer
from tests.fuzz.mutation import Mutator
from tests.fuzz.protobuf import fields, join, varint
from tests.fuzz.target import DefectError, Target, require
from tests.fuzz.workers import fuzz


def found(run: Callable[[bytes], None], seed: bytes = b"magic", inputs: int = 2) -> list[Finding]:
    """Fuzz a planted defect, ``seed`` first, and return the findings."""
    target = Target(
        name="planted", run=run, seeds=lambda: [b"-", seed], tokens=[b"magic"], max_memory=64 << 20
    )
    return Fuzzer(target, "seed", lambda _: None).run(inputs).findings


def test_an_exception_is_found_once() -> None:
    def run(data: bytes) -> None:
        require(b"magic" not in data, "the word was said")

    (finding,) = found(run, seed=b"seed", inputs=2000)
    assert b"magic" in finding.data
    assert "DefectError: the word was said" in finding.problem
    with pytest.raises(DefectError):
        run(finding.data)


def test_a_correct_target_has_no_finding() -> None:
    assert found(lambda _: None, inputs=2000) == []


@pytest.mark.full
def test_too_much_time_is_found() -> None:
    def run(data: bytes) -> None:
        end = time.process_time() + 1.2
        while b"magic" in data and time.process_time() < end:
            pass

    (finding,) = found(run)
    assert finding.data == b"magic"
    assert "more than 1 s of CPU" in finding.problem


def test_an_endless_loop_is_stopped_and_found() -> None:
    def run(data: bytes) -> None:
        while b"magic" in data:
            pass

    (finding,) = found(run)
    assert finding.data == b"magic"
    assert "more than 1 s of CPU" in finding.problem


def test_too_much_memory_is_found() -> None:
    # More than this process has had before: a peak is raised only by what is above it.
    much = 1 << 30

    def run(data: bytes) -> None:
        if b"magic" in data:
            bytearray(much)[::4096] = bytes(much // 4096)

    findings = found(run)
    assert {finding.data for finding in findings} == {b"magic"}
    # On a busy machine so much memory takes too much CPU as well.
    assert any("memory: it raised the peak" in finding.problem for finding in findings)


def crash(data: bytes) -> None:
    if b"magic" in data:
        os.abort()


def nothing(_: bytes) -> None:
    return


def no_seeds() -> list[bytes]:
    return [b""]


@pytest.mark.full
def test_a_process_that_ends_is_found_and_replaced() -> None:
    targets = [
        Target(name="crash", run=crash, seeds=no_seeds, tokens=[b"magic"]),
        Target(name="good", run=nothing, seeds=no_seeds),
    ]
    outcomes = list(fuzz(targets, inputs=2000, seed="seed", processes=1))
    crashes = [finding for outcome in outcomes for finding in outcome.findings]
    assert {finding.target for finding in crashes} == {"crash"}
    assert all(b"magic" in finding.data and "crash: " in finding.problem for finding in crashes)


@pytest.mark.parametrize("file", sorted((Path(__file__).parents[1] / "data" / "payloads").glob("*-01.bin")))
def test_a_message_is_taken_apart_and_put_together(file: Path) -> None:
    parts = fields(file.read_bytes())
    assert parts
    assert join(parts) == file.read_bytes()


def test_varints_are_padded() -> None:
    assert [varint(1, padding) for padding in (0, 1, 2)] == [b"\x01", b"\x81\x00", b"\x81\x80\x00"]


def test_inputs_have_a_bound() -> None:
    mutator = Mutator(Random(1), (b"x" * 90,), 100)
    data = b""
    for _ in range(2000):
        data = mutator.mutate(data, data)
        assert len(data) <= 100
