"""The page of real clients is the one of its data, and says what the receiver's quirks say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.testkit import page as pages
from receiver.testkit.checks.check import Severity
from receiver.testkit.checks.table import CHECKS

FOLDER = Path(pages.__file__).parent
MUSTS = {check.id for check in CHECKS if check.severity is Severity.MUST}


def clients() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / "clients.json").read_text())["clients"]
    return found


def failures(name: str) -> set[str]:
    return {
        check for client in clients() if client["client_id"].startswith(name) for check in client["failed"]
    }


def test_the_page_is_made_from_the_data() -> None:
    assert (FOLDER / "clients.md").read_text() == pages.page(clients())


def test_java_and_librdkafka_of_today_fail_no_must() -> None:
    for name in ("java-4.4", "librdkafka-2.16"):
        assert [c for c in clients() if c["client_id"].startswith(name)]
        assert failures(name) & MUSTS == set()


def test_the_quirks_of_real_clients_were_seen() -> None:
    assert "TK-039" in failures("librdkafka-2.5.0")
    assert {"TK-009", "TK-063", "TK-064"} <= failures("librdkafka-2.8")
    assert "TK-024" in failures("java-3.9.1-gzip-only")
    assert "TK-082" in failures("franz-go-1.21.3")
    assert failures("franz-go-producer") & {"TK-082"} == set()
    assert {"TK-055", "TK-079"} <= failures("java-4.4")
    assert {"TK-076", "TK-077"} <= failures("librdkafka-2.16")
