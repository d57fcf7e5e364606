"""Decides what generated inputs are drawn from: fixed in the gate, a seed in ``make test-full``.

The gate explores nothing, so the same commit has the same outcome every time. ``make test-full``
sets :data:`VARIABLE`; then the tests marked ``explores`` and the fuzzer's longer runs draw from it.

No property has a deadline for one example, and none fails because drawing is slow: both measure
the wall clock, and on a busy machine they fail tests of pure code.
"""

from __future__ import annotations

import os
import zlib
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

#: The environment variable with the seed.
VARIABLE: Final = "TESTS_SEED"
#: The seed to explore with. None: explore nothing.
SEED: Final = os.environ.get(VARIABLE) or None

#: The gate draws one of so many examples, and at least so many.
_SHARE: Final = 3
_LEAST: Final = 5
#: Hypothesis' own default.
_EXAMPLES: Final = 100


def examples(count: int) -> int:
    """Return how many examples a property draws, of ``count`` in ``make test-full``.

    The gate draws the same ones every time. So more of them make it slower and find nothing new.
    """
    return count if SEED else max(_LEAST, count // _SHARE)


# Settings take the profile's values when they are made, so it is loaded before tests are imported.
settings.register_profile(
    "exploring" if SEED else "gate",
    max_examples=examples(_EXAMPLES),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=SEED is None,
    database=None,
    print_blob=True,
)
settings.load_profile("exploring" if SEED else "gate")


def as_number(seed: str) -> int:
    """Return a seed as a number of 32 bits."""
    return zlib.crc32(seed.encode())


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis the seed, unless the command line has one."""
    if SEED and config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = str(as_number(SEED))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each property, before pytest evaluates ``-m``."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.explores)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Say after a failure how to repeat it, and how to keep what was found."""
    if SEED and exitstatus == pytest.ExitCode.TESTS_FAILED:
        terminalreporter.section("how to keep a finding")
        terminalreporter.write_line(
            f"Properties and fuzzing drew from the seed {SEED}: `make test-full SEED={SEED}` repeats them.\n"
            "Keep a falsifying example as @example(...) above its property, and an input of a fuzz\n"
            "target as tests/fuzz/regressions/TARGET/NAME.bin. The gate replays both."
        )
