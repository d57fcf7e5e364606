"""The source files keep the rules that no linter has."""

from __future__ import annotations

import pytest

from tests.project.source import TREE, broken_rules, problems


def test_no_file_breaks_a_rule() -> None:
    assert broken_rules() == []


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("receiver/clock.py", "__all__ = ['a']\n", [1]),
        ("receiver/host/__init__.py", "__all__ = ['a']\n", []),
        ("receiver/public-api/kafka_client_telemetry/plugin.py", "__all__ = ['a']\n", []),
        ("plugins/console/config.py", f'"""{"a" * 80}"""\n', []),
        ("plugins/console/config.py", f'"""{"a" * 81}"""\n', [1]),
        (
            "receiver/clock.py",
            f'class A:\n    """A."""\n    def f():\n        """{"b" * 81}\n\n        C."""\n',
            [4],
        ),
        ("receiver/clock.py", "# of a site\n", [1]),
        ("receiver/clock.py", "content = file.read(BOUND + 1)\n", [1]),
        ("spark_streaming/files.py", "content = file.read(BOUND + 1)\n", []),
        ("receiver/clock.py", "text = f'{len(late)} of {len(found)} pushes were late'\n", [1]),
        ("receiver/clock.py", "text = f'{len(late)} telemetry requests'\n", [1]),
        ("receiver/clock.py", "text = f'{len(data)} bytes'\n", []),
        ("tests/audit.py", f'"""{"a" * 81}"""\n', []),
        ("tests/audit.py", "for one in ():\n    pass\n", [1]),
        ("tests/audit.py", "a = [one for one in ()]\n", [1]),
    ],
)
def test_a_break_is_found(name: str, text: str, found: list[int]) -> None:
    assert [line for line, _ in problems(TREE / name, text)] == found
