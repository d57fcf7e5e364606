"""Writes verdicts as JSON, JUnit XML or text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from xml.etree import ElementTree

from receiver.testkit.checks.check import Severity
from receiver.testkit.checks.judged import Judged, Judgement

_MARK: Final = {True: "pass", False: "FAIL", None: "  - "}


def has_failed(judged: Sequence[Judged]) -> bool:
    """Return whether a check of severity *must* failed."""
    return any(client.failed(Severity.MUST) for client in judged)


def document(judged: Sequence[Judged]) -> dict[str, Any]:
    """Return the report on clients as JSON values."""
    return {"clients": [_described(client) for client in judged]}


def as_json(judged: Sequence[Judged], of: str = "clients") -> str:
    """Return the report as JSON, under the key ``of``."""
    return json.dumps({of: [_described(subject) for subject in judged]}, indent=2) + "\n"


def _described(judged: Judged) -> dict[str, Any]:
    return {**judged.description(), "checks": [_check(judgement) for judgement in judged.judgements]}


def _check(judgement: Judgement) -> dict[str, Any]:
    check, verdict = judgement.check, judgement.verdict
    return {
        "id": check.id,
        "title": check.title,
        "severity": str(check.severity),
        "passed": verdict.passed,
        "sentence": check.sentence,
        "source": check.source,
        "seen": verdict.seen,
        "repeat": check.repeat,
    }


def as_junit(judged: Sequence[Judged]) -> str:
    """Return the report as JUnit XML: a suite for each client or broker.

    A failed *must* is a failure. Other failed checks pass with what was seen in ``system-out``.
    """
    root = ElementTree.Element("testsuites", name="kafka-telemetry testkit")
    for client in judged:
        failures = len(client.failed(Severity.MUST))
        untried = sum(judgement.verdict.passed is None for judgement in client.judgements)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_clean(client.title),
            tests=str(len(client.judgements)),
            failures=str(failures),
            skipped=str(untried),
        )
        for judgement in client.judgements:
            _case(suite, judgement)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, judgement: Judgement) -> None:
    check, verdict = judgement.check, judgement.verdict
    case = ElementTree.SubElement(
        suite, "testcase", classname=suite.get("name", ""), name=f"{check.id} {check.title}"
    )
    seen = _clean(verdict.seen)
    if verdict.passed is None:
        ElementTree.SubElement(case, "skipped", message=seen)
    elif not verdict.passed and check.severity is Severity.MUST:
        failure = ElementTree.SubElement(case, "failure", message=seen)
        failure.text = f"{check.source}: {check.sentence}\nRepeat: {check.repeat}"
    else:
        prefix = "" if verdict.passed else f"{check.severity}, not kept: "
        ElementTree.SubElement(case, "system-out").text = prefix + seen


def as_badge(judged: Sequence[Judged]) -> str:
    """Return a badge as JSON, in the format of shields.io/endpoint.

    It counts the checks of severity *must* that passed, of those that were tried on any client.
    """
    tried: dict[str, bool] = {}
    for client in judged:
        for judgement in client.judgements:
            if judgement.check.severity is Severity.MUST and judgement.verdict.passed is not None:
                good = tried.get(judgement.check.id, True)
                tried[judgement.check.id] = good and judgement.verdict.passed
    passed = sum(tried.values())
    badge = {
        "schemaVersion": 1,
        "label": "KIP-714",
        "message": f"{passed} of {len(tried)}" if tried else "no client",
        "color": "lightgrey" if not tried else "brightgreen" if passed == len(tried) else "red",
    }
    return json.dumps(badge) + "\n"


def as_text(judged: Sequence[Judged], *, problems_only: bool = False) -> str:
    """Return the report for a terminal."""
    lines = []
    for client in judged:
        lines.append(client.title)
        for judgement in client.judgements:
            check, verdict = judgement.check, judgement.verdict
            if problems_only and verdict.passed is not False:
                continue
            lines.append(f"  {_MARK[verdict.passed]} {check.id} {check.severity:<11} {check.title}")
            lines.append(f"       {verdict.seen}")
            if verdict.passed is False:
                lines.append(f"       {check.source}: {check.sentence}")
                lines.append(f"       repeat: {check.repeat}")
        lines.append(f"  {_summary(client)}")
    if not judged:
        lines.append("nobody was judged")
    return "".join(f"{_clean(line)}\n" for line in lines)


def _summary(client: Judged) -> str:
    verdicts = [judgement.verdict.passed for judgement in client.judgements]
    musts, shoulds = len(client.failed(Severity.MUST)), len(client.failed(Severity.SHOULD))
    tried = sum(verdict is not None for verdict in verdicts)
    return f"{verdicts.count(True)} of {tried} checks passed; failed: {musts} must, {shoulds} should"


def _clean(text: str) -> str:
    """Return text that a terminal and XML bear: a client chose parts of it."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
