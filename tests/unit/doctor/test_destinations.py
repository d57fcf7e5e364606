"""Plugins that hang, crash, prove nothing or quote a secret, and what the receiver says of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from receiver.doctor import destinations
from receiver.doctor.destinations import check_destinations, delivery_findings
from receiver.doctor.findings import Finding, State
from receiver.host.discovery import HostedPlugin
from receiver.plugin import (
    ClientTelemetryContext,
    ClientTelemetryPayload,
    ClientTelemetryReceiver,
    PermanentError,
    PluginConfig,
    Secret,
)


class Config(PluginConfig):
    token: Secret


class Plugin(ClientTelemetryReceiver):
    """A third party's plugin; ``answer`` is what its check does."""

    Config = Config
    answer: Any = None

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        raise NotImplementedError

    def check_destination(self, timeout_s: float) -> str | None:
        result: str | None = self.answer(timeout_s) if self.answer else None
        return result


def check(monkeypatch: pytest.MonkeyPatch, answer: Any) -> Finding:
    plugin = Plugin(Config(token="hush-hush"))  # type: ignore[arg-type] # pydantic makes it a secret
    plugin.answer = answer
    hosted = HostedPlugin(
        name="mine", type="mine", plugin=plugin, config={"isolation": "process", "delivery": "x"}
    )

    def load(entries: Sequence[Mapping[str, Any]]) -> list[HostedPlugin]:
        assert entries == [{"delivery": "x"}]  # in this process, which can call it
        return [hosted]

    monkeypatch.setattr(destinations, "load_plugins", load)
    (finding, *_) = asyncio.run(check_destinations([hosted]))
    return finding


def failing(error: Exception) -> Any:
    def answer(timeout_s: float) -> str:
        raise error

    return answer


def test_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = check(monkeypatch, lambda timeout_s: f"answers with hush-hush in {timeout_s:g} s")
    assert (finding.state, finding.seen) == (State.OK, "answers with ********** in 4 s")


def test_a_plugin_that_can_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(monkeypatch, None).state is State.UNKNOWN


@pytest.mark.parametrize("error", [PermanentError("no hush-hush"), RuntimeError("no hush-hush")])
def test_failures_have_no_secret(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    finding = check(monkeypatch, failing(error))
    assert finding.state is State.FAILED
    assert "no **********" in finding.seen
    assert "hush" not in finding.seen


def test_a_check_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destinations, "PROBE_S", 0.05)
    released = threading.Event()
    finding = check(monkeypatch, lambda timeout_s: str(released.wait(120)))
    released.set()
    assert (finding.state, "no answer within" in finding.seen) == (State.FAILED, True)


def view(**fields: Any) -> dict[str, Any]:
    return {
        "name": "otlp",
        "state": "running",
        "queue": {"pushes": 1},
        "spool": {"pushes": 2, "problem": None},
        "in_flight": 3,
        "exported": 7,
        "dropped": {"queue_full": 0},
        "consecutive_failures": 0,
        "last_error": None,
        **fields,
    }


def test_what_the_running_receiver_says() -> None:
    assert delivery_findings([view()])[0].seen == "exported: 7, 6 pushes wait"
    for fields, state, words in (
        ({"spool": {"pushes": 0, "problem": "disk full"}}, State.FAILED, "disk full"),
        (
            {"consecutive_failures": 3, "last_error": "refused"},
            State.FAILED,
            "3 failed exports in a row, 6 pushes wait: refused",
        ),
        (
            {"files_problem": "tls.ca_file: no certificate"},
            State.FAILED,
            "changed files can't be used, the old ones stay: tls.ca_file: no certificate",
        ),
        ({"state": "hangs"}, State.FAILED, "its state is hangs, 6 pushes wait"),
        ({"dropped": {"queue_full": 4}}, State.WARNING, "4 queue_full"),
        ({"spool": None}, State.OK, "4 pushes wait"),
    ):
        (finding,) = delivery_findings([view(**fields)])
        assert (finding.state, words in finding.seen) == (state, True), finding
