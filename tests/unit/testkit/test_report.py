"""The report as JSON, JUnit XML and text."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from receiver.testkit import report
from receiver.testkit.judge import ClientJudgement
from tests.unit.testkit.scripted_client import ScriptedClient, Told, verdicts


class Bad(ScriptedClient):
    """Fails a must, TK-007, and a should, TK-040."""

    client_id = "bad\x1b[31m"

    def subscription_id(self, told: Told) -> int:
        return told.subscription_id + (self.pushes == 1)

    def goodbye(self, told: Told) -> bool:
        return False


@pytest.fixture(scope="module")
def judged() -> list[ClientJudgement]:
    return [verdicts(ScriptedClient, seconds=20), verdicts(Bad, seconds=20)]


def test_json_has_every_check_of_every_client(judged: list[ClientJudgement]) -> None:
    good, bad = json.loads(report.as_json(judged))["clients"]
    assert good["software"] == "scripted 1.0"
    assert {check["passed"] for check in good["checks"]} == {True, None}
    (failed,) = (c for c in bad["checks"] if c["passed"] is False and c["severity"] == "must")
    assert failed["id"] == "TK-007"
    assert set(failed) == {"id", "title", "severity", "passed", "sentence", "source", "seen", "repeat"}
    assert all(failed.values()) is False
    untried = next(check for check in good["checks"] if check["passed"] is None)
    assert untried["seen"].startswith("not tried: ")


def test_only_a_must_is_a_failure(judged: list[ClientJudgement]) -> None:
    assert report.has_failed(judged)
    assert not report.has_failed(judged[:1])
    suites = ElementTree.fromstring(report.as_junit(judged)).findall("testsuite")
    assert [suite.get("failures") for suite in suites] == ["0", "1"]
    (failure,) = suites[1].iter("failure")
    assert "SubscriptionId" in (failure.text or "")
    said = [case.findtext("system-out") or "" for case in suites[1] if "TK-040" in case.get("name", "")]
    assert said[0].startswith("should, not kept: ")


def test_text_shows_no_control_characters(judged: list[ClientJudgement]) -> None:
    text = report.as_text(judged)
    assert "\x1b" not in text
    assert "FAIL TK-007 must" in text
    assert "failed: 1 must, 1 should" in text
    assert report.as_text([]) == "nobody was judged\n"


def test_the_badge_counts_the_musts(judged: list[ClientJudgement]) -> None:
    good, both, nobody = (json.loads(report.as_badge(clients)) for clients in (judged[:1], judged, []))
    count = int(good["message"].split(" of ")[1])
    assert (good["message"], good["color"]) == (f"{count} of {count}", "brightgreen")
    assert (both["message"], both["color"]) == (f"{count - 1} of {count}", "red")
    assert (nobody["message"], nobody["schemaVersion"]) == ("no client", 1)
