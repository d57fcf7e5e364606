"""What ``make audit`` takes for an answer, and which locks it takes for locked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import audit
from tests.audit import read, unhashed

TREE = Path(__file__).parents[2]
HASH = "--hash=sha256:" + "0a" * 32


def test_a_lock_with_hashes_is_fine() -> None:
    line = f"anyio[extra]==4.16.0 ; python_version < '3.12' \\\n    {HASH} \\\n    {HASH}\n    # via httpx\n"
    assert unhashed(f"# locked\n{line}") == []


@pytest.mark.parametrize(
    "line",
    [
        "anyio==4.16.0",
        f"anyio>=4.16 \\\n    {HASH}",
        f"anyio @ https://example.com/anyio.whl \\\n    {HASH}",
        "anyio==4.16.0 \\\n    --hash=md5:0a",
    ],
)
def test_what_is_not_locked_by_hash_is_named(line: str) -> None:
    assert unhashed(f"idna==3.11 \\\n    {HASH}\n{line}\n") == [line.split()[0]]


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_our_locks_are_read_whole(lock: str) -> None:
    text = (TREE / lock).read_text()
    assert unhashed(text) == []
    assert len(unhashed(text.replace("--hash", "--other"))) == text.count("==") - text.count(" == ")


def test_a_vulnerability_is_named_with_its_fix() -> None:
    known = {"id": "PYSEC-2024-1", "aliases": ["CVE-2024-1"], "fix_versions": ["1.1"], "description": "..."}
    packages = [
        {"name": "one", "version": "1.0", "vulns": [known]},
        {"name": "two", "version": "2.0", "vulns": []},
        {"name": "three", "skip_reason": "Dependency not found on PyPI"},
    ]
    answer = read(json.dumps({"dependencies": packages, "fixes": []}))
    assert answer.vulnerabilities == ["one 1.0: PYSEC-2024-1, CVE-2024-1; fixed in 1.1"]
    assert answer.checked == ["one 1.0", "two 2.0"]
    assert answer.unknown == ["three"]


def test_no_report_is_no_answer() -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        read("")


def test_a_database_that_does_not_answer_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit, "_TIMEOUT_S", 0)
    assert audit.main() == 0
    said = capsys.readouterr().out
    for database in ("pypi", "osv"):
        assert f"{database}: has not answered in 0 s" in said
    assert "not checked" in said
