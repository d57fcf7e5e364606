"""A text for people shows no Python object: the rule for types, and the search in outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.plain_texts import python_objects

TREE: Final = Path(__file__).parents[2]

SOURCE: Final = """
from enum import Enum, IntEnum, StrEnum
from pathlib import Path


class Plain(Enum):
    A = 1


class Number(IntEnum):
    A = 1


class Text(StrEnum):
    A = "a"


class Silent:
    pass


class Shown:
    def __str__(self) -> str:
        return "shown"


def wrong(
    maybe: str | None, flag: bool, names: list[str], pair: tuple[int, int], plain: Plain, number: Number,
    silent: Silent, raw: bytes, error: OSError,
) -> list[str]:
    return [
        f"{maybe}",
        f"{flag}",
        f"{names}",
        f"{pair}",
        f"{plain}",
        f"{number}",
        f"{silent}",
        f"{raw!r}",
        f"{error.strerror}",
        f"{names!r}",
        str(maybe),
    ]


def right(
    text: str, count: int, ratio: float, path: Path, error: OSError, shown: Shown, word: Text, flag: bool,
    maybe: str | None,
) -> list[str]:
    return [
        f"{text} {count:,} {ratio:.1f} {path} {error} {shown} {word} {text!r}",
        f"{number_of(flag):>5}",
        str(flag).lower(),
        f"{maybe}" if maybe else "",
        "{}".format(maybe),
    ]


def number_of(flag: bool) -> int:
    return int(flag)
"""


def test_the_types_of_values_in_texts_are_checked(tmp_path: Path) -> None:
    def broken(package: str) -> list[int]:
        folder = tmp_path / package
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
        (folder / "texts.py").write_text(SOURCE)
        done = subprocess.run(
            [
                sys.executable, "-m", "mypy", "--config-file", str(TREE / "pyproject.toml"),
                "--cache-dir", str(tmp_path / "cache"), "--output", "json", str(folder / "texts.py"),
            ],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )  # fmt: skip
        assert not done.stderr, done.stderr
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert all("a text shows" in problem["message"] for problem in found), done.stdout
        return [problem["line"] for problem in found]

    lines = SOURCE.splitlines()
    first, last = lines.index('        f"{maybe}",') + 1, lines.index("        str(maybe),") + 1
    assert broken("receiver") == list(range(first, last + 1))
    # Tests may show anything.
    assert broken("tests") == []


@pytest.mark.parametrize(
    "text",
    [
        "the broker's cluster is None",
        "enabled: True",
        "state <CircuitState.OPEN: 'open'>",
        "CircuitState.OPEN",
        "met: ['get', 'push']",
        "{'a': 1}",
        "codecs (4, 3)",
        "key=b'abc'",
        "file PosixPath('/x')",
        "<class 'int'>",
        "<receiver.host.Host object at 0x7f00>",
    ],
)
def test_a_python_object_in_an_output_is_found(text: str) -> None:
    assert python_objects(f"good\n{text}\n") == [text]


@pytest.mark.parametrize(
    "text",
    [
        '{"enabled":true,"value":null,"names":["a","b"]}',
        "there is no subscription named 'a b'",
        "error code NONE, metrics: [org.apache.kafka.producer.], labels {team=a}",
        "client id 'None', by-None",
        "'a', 'b' and 2 more (of 4)",
    ],
)
def test_a_text_for_people_is_not(text: str) -> None:
    assert python_objects(text) == []
