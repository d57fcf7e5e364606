"""Whole examinations without a broker: what is left out, and what can't be read."""

from __future__ import annotations

import asyncio
from pathlib import Path

from receiver.doctor import Access, Options, Report, State, examine
from tests.testbed.ports import free_port
from tests.unit.doctor.test_rest_api import LIVE, Answer, served


def run(file: Path, text: str, options: Options | None = None) -> Report:
    file.write_text(text)
    return asyncio.run(examine(file, {}, options or Options()))


def config(rest: str, folder: Path) -> str:
    return f"""
listeners: [{{name: A, bind: "127.0.0.1:{free_port()}", upstream: "127.0.0.1:{free_port()}"}}]
rest: {{bind: "{rest}"}}
subscriptions: {{path: {folder}/subscriptions.db}}
plugins: [{{type: console, delivery: memory}}]
"""


def states(report: Report) -> dict[tuple[str, str], State]:
    return {(str(finding.area), finding.check): finding.state for finding in report.findings}


def test_a_wrong_configuration_ends_it_with_every_mistake(tmp_path: Path) -> None:
    report = run(tmp_path / "receiver.yaml", "listener: []\nlisteners: [{name: A, bind: nowhere}]\n")
    assert {(finding.check, finding.state) for finding in report.findings} == {("valid", State.FAILED)}
    places = [finding.subject for finding in report.findings]
    assert sorted(places) == ["receiver.yaml:1:1", "receiver.yaml:2:13", "receiver.yaml:2:23"]


def test_a_receiver_of_another_version(tmp_path: Path) -> None:
    def answer(path: str) -> Answer:
        return LIVE if path == "/livez" else (200, "application/json", b'{"items": [{}], "next": null}')

    with served(answer, []) as settings:
        report = run(tmp_path / "receiver.yaml", config(str(settings.bind), tmp_path))
    assert states(report)["receiver", "runs"] is State.OK
    (unread,) = (
        finding for finding in report.findings if finding.check == "answers" and finding.area == "receiver"
    )
    assert (unread.state, "not those of this version" in unread.seen) == (State.UNKNOWN, True)
    assert not report.proven


def test_a_receiver_on_another_machine_does_not_run(tmp_path: Path) -> None:
    text = config(f"127.0.0.1:{free_port()}", tmp_path)
    report = run(tmp_path / "receiver.yaml", text, Options(access=Access(host="localhost")))
    assert states(report)["receiver", "runs"] is State.FAILED
    assert ("ports", "port") not in states(report)  # this machine's ports don't matter


def test_a_rest_port_that_the_system_chooses(tmp_path: Path) -> None:
    text = config("127.0.0.1:0", tmp_path)
    assert states(run(tmp_path / "receiver.yaml", text))["receiver", "runs"] is State.UNKNOWN
    before = states(run(tmp_path / "receiver.yaml", text, Options(before_start=True)))
    assert ("receiver", "runs") not in before


def test_a_list_without_an_end_is_bounded(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(path: str) -> Answer:
        asked.append(path.partition("?")[0])
        if path == "/livez":
            return LIVE
        following = b'"more"' if path.startswith(("/v1/clients", "/v1/connections")) else b"null"
        return 200, "application/json", b'{"items": [], "next": ' + following + b"}"

    with served(answer, []) as settings:
        text = config(str(settings.bind), tmp_path)
        report = run(tmp_path / "receiver.yaml", text, Options(client="orders-1"))
    assert asked.count("/v1/clients") == asked.count("/v1/connections") == 40
    (known,) = (finding for finding in report.findings if finding.check == "known")
    assert (known.state, known.seen) == (State.FAILED, "it is not among the first clients")
