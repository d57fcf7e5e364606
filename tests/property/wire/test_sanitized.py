"""The compiled data path's suites pass with the address and undefined sanitizers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from receiver.wire import walk
from tests.testbed.sanitized import VARIABLE, sanitized_environment

ROOT = Path(__file__).parents[3]
SUITES = (
    "tests/property/test_turns.py",
    "tests/property/session/test_addressed_pump.py",
    "tests/property/wire/test_walk.py",
    "tests/property/wire/test_tls_pump.py",
    "tests/unit/test_event_loop.py",
    "tests/unit/gateway/test_tls_connection.py",
    "tests/unit/gateway/test_turns.py",
    "tests/fuzz/test_fuzz.py",
)
#: Of the fuzzer, earlier findings. Its workers have less memory than a sanitizer maps.
CHOSEN = "not test_fuzz or earlier and (tls or session or wire)"


@pytest.mark.full
@pytest.mark.timeout(3_600)  # it takes twenty times as long
@pytest.mark.skipif(walk.compiled is None, reason="the extension is not built")
def test_the_suites_of_the_data_path_pass_with_sanitizers(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "pytest", "-x", "-p", "no:xdist", "-p", "tests.testbed.sanitized")
    environment = sanitized_environment(tmp_path)
    done = subprocess.run(
        [*command, "-o", "timeout=0", "-m", "not full", "-k", CHOSEN, *SUITES],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-20_000:]
    assert f"extension: {environment[VARIABLE]}" in done.stdout
