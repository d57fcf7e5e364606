"""The report: proof, order, bounds and the JSON document that docs/doctor.md describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from receiver.doctor import findings
from receiver.doctor.findings import Area, Finding, Report, State, failed, ok, unknown, warning

TREE = Path(__file__).parents[3]
PAGE = (TREE / "docs" / "doctor.md").read_text()


def test_it_is_proven_while_nothing_failed_and_nothing_is_unknown() -> None:
    good = ok(Area.TLS, "dates", "x", "valid")
    late = warning(Area.TLS, "dates", "x", "ends soon", "renew it")
    assert Report([good, late]).proven
    assert not Report([good, failed(Area.TLS, "dates", "x", "expired", "renew it")]).proven
    assert not Report([good, unknown(Area.TLS, "dates", "x", "unread", "read it")]).proven
    assert not Report([]).proven


def test_findings_are_grouped_by_area_in_its_order() -> None:
    given = [ok(area, "x", str(number), "") for number in range(2) for area in reversed(Area)]
    report = Report(given)
    assert [(finding.area, finding.subject) for finding in report.findings] == [
        (area, str(number)) for area in Area for number in range(2)
    ]


def test_what_is_not_ok_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"tls\.dates"):
        Finding(area=Area.TLS, check="dates", subject="x", state=State.WARNING, seen="ends soon")


def test_texts_are_one_bounded_line() -> None:
    finding = failed(Area.CLIENT, "x", "x", "a\n b" + "c" * 9999, "d\te")
    assert finding.seen.startswith("a bccc")
    assert len(finding.seen) == 600
    assert finding.do == "d e"


def test_the_document() -> None:
    report = Report(
        [ok(Area.PORTS, "port", "rest.bind", "free"), failed(Area.TLS, "dates", "x", "past", "renew")]
    )
    assert report.document() == {
        "version": findings.SCHEMA_VERSION,
        "proven": False,
        "counts": {"ok": 1, "warning": 0, "failed": 1, "unknown": 0},
        "findings": [
            {
                "area": "ports",
                "check": "port",
                "subject": "rest.bind",
                "state": "ok",
                "seen": "free",
                "do": None,
            },
            {
                "area": "tls",
                "check": "dates",
                "subject": "x",
                "state": "failed",
                "seen": "past",
                "do": "renew",
            },
        ],
    }


def test_the_page_names_every_state_area_field_and_check() -> None:
    report = Report([ok(Area.PORTS, "port", "x", "")]).document()
    fields = [name for name in report if name != "findings"]
    fields += [f"findings[].{name}" for name in report["findings"][0]]
    # The example shows every field; the table has those that need words.
    missing = [name for name in fields if f'"{name.rpartition(".")[2]}":' not in PAGE]
    names = [*map(str, State), *map(str, Area), *_checks()]
    assert [name for name in names if f"`{name}`" not in PAGE] + missing == []


def _checks() -> set[str]:
    """The names of checks in the source: the second argument of each finding."""
    finding = re.compile(r'\b(?:ok|warning|failed|unknown)\(\s*[Aa]rea[.A-Z]*,\s*"(\w+)"')
    files = (TREE / "receiver" / "doctor").glob("*.py")
    found = {name for file in files for name in finding.findall(file.read_text())}
    assert len(found) > 20
    return found
