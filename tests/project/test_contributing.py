"""Every command of CONTRIBUTING.md can be pasted, and every file that it names is there."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
PAGE = (TREE / "CONTRIBUTING.md").read_text()
#: Code spans and the lines of code blocks.
CODE = [
    *re.findall(r"(?<!`)`([^`\n]+)`(?!`)", PAGE),
    *(line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()),
]
COMMANDS = sorted({code for code in CODE if re.match(r"make |\.venv/bin/|python ", code)})
#: Placeholders, and what only a build makes.
_NOT_THERE = re.compile(r"[A-Z]{4,}|^build/|^~")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_pasted(command: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "make":
        subprocess.run(
            [program, "--dry-run", *arguments], cwd=TREE, check=True, capture_output=True, timeout=60
        )
        return
    assert program.startswith(".venv/bin/"), "python is the machine's, which lacks what is needed"
    assert (TREE / program).exists()
    if arguments[:1] == ["-m"] and arguments[1].partition(".")[0] in {"benchmarks", "tests"}:
        module = TREE / arguments[1].replace(".", "/")
        assert module.is_dir() or module.with_suffix(".py").exists()


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 20


def test_the_files_that_it_names_are_there() -> None:
    named = {
        word
        for code in CODE
        for word in code.split()
        if "/" in word and re.fullmatch(r"[\w.][\w./+-]*", word) and not _NOT_THERE.search(word)
    }
    assert len(named) > 20
    assert sorted(name for name in named if not (TREE / name).exists()) == []
