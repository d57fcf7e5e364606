"""``python -m tests`` runs each test file once, with the parts that it sets up and no others."""

from __future__ import annotations

import shutil
import sys

import pytest

from tests import __main__ as runner
from tests.selection import FULL, TREE, is_full
from tests.testbed import parts

FILES = sorted(str(path.relative_to(TREE)) for path in (TREE / "tests").rglob("test_*.py"))


def runs(group: runner._Group, file: str) -> bool:
    """Tell whether the group's pytest collects the file."""
    command = runner._command(group, TREE, "full")
    ignored = [word.removeprefix("--ignore=") for word in command if word.startswith("--ignore=")]
    below = [path for path in group.tests if file.startswith((f"{path}/", path))]
    return bool(below) and not any(file.startswith((f"{path}/", path)) for path in ignored)


@pytest.mark.parametrize("file", FILES)
def test_each_file_is_in_one_group(file: str) -> None:
    groups = [group.name for group in runner._GROUPS if runs(group, file)]
    assert len(groups) == (0 if file.startswith(runner._ELSEWHERE) else 1), groups


@pytest.mark.parametrize("path", FULL)
def test_what_is_listed_as_slow_exists(path: str) -> None:
    assert (TREE / path).exists(), f"remove {path} from tests/selection.py, or write its new name"


def test_a_folder_stands_for_its_files() -> None:
    assert is_full(TREE / "tests" / "helm" / "test_chart.py")
    assert not is_full(TREE / "tests" / "unit" / "test_groups.py")


def test_a_part_that_a_run_does_not_set_up_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(parts.CHOSEN, ",".join(runner._PARTS))
    with pytest.raises(parts.NotSetUpError, match="mark the test `full`"):
        parts.PROMETHEUS.require()


def test_the_last_lines_of_a_run_name_the_tests_that_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "FAILED tests/unit/test_x.py::test_y - AssertionError: planned"
    program = f"import sys; print('1 failed'); print({line!r}); print('bye'); sys.exit(1)"
    failing = runner._Group(name="failing", commands=((sys.executable, "-c", program),))
    monkeypatch.setattr(runner, "_GROUPS", (failing,))
    monkeypatch.setattr(runner, "_FULL_GROUPS", ())
    monkeypatch.setattr(
        runner,
        "_set_up",
        lambda *_: runner._Group(name="set-up", commands=((sys.executable, "-c", ""),)),
    )
    monkeypatch.setattr(sys, "argv", ["tests", "--full"])
    assert runner.main() == 1
    *before, named, last = capsys.readouterr().out.splitlines()
    seed = before[0].rpartition(" ")[2]
    assert f"make test-full SEED={seed}" in before[-1]
    assert named == f"[failing] {line}"
    assert last.startswith("failed: failing; the tests' files are in ")
    shutil.rmtree(last.rpartition(" ")[2])


def test_the_report_names_the_slowest_tests_and_what_a_group_waited_for() -> None:
    measures = [
        {
            "test": f"test_{number % 2}.py::test_{number}",
            "phase": phase,
            "wall_s": number * factor,
            "processor_s": 0.25,
            "cpu_s": 0.5 + number % 2,
        }
        for number in range(20)
        for phase, factor in (("setup", 2.0), ("call", 1.0), ("teardown", 0.0))
    ]
    outcome = runner._Outcome(wall_s=600.0, cpu_s=55.5, measures=measures)
    title, *lines = runner._report({"kafka": outcome}).splitlines()
    slowest, (heading, *dearest), (columns, numbers) = lines[:10], lines[10:13], lines[13:]
    assert title == "==> [test] slowest tests:"
    assert slowest[0].split()[2:] == ["38.0", "s", "test_1.py::test_19", "(setup)"]
    assert slowest[-1].split()[2:] == ["20.0", "s", "test_0.py::test_10", "(setup)"]
    assert "CPU seconds" in heading
    assert [line.split()[2:] for line in dearest] == [["45.0", "s", "test_1.py"], ["15.0", "s", "test_0.py"]]
    assert columns.split()[2:] == ["seconds", "wall", "CPU", "set-up", "calls", "teardown", "processor"]
    assert numbers.split()[2:] == ["kafka", "600.0", "55.5", "380.0", "190.0", "0.0", "15.0"]
