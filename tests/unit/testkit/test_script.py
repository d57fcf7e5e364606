"""Scripts: the built-in ones, and errors that name field, value and fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.testkit.script import BUILT_IN, ScriptError, load_script, parse_script


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_built_in_scripts_are_valid(name: str) -> None:
    assert load_script(name).steps


def test_the_default_script_meets_each_error_that_a_client_survives() -> None:
    errors = {step.error for step in load_script("default").steps if step.error}
    assert errors == {
        "THROTTLING_QUOTA_EXCEEDED",
        "TELEMETRY_TOO_LARGE",
        "UNKNOWN_SUBSCRIPTION_ID",
        "UNSUPPORTED_COMPRESSION_TYPE",
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("steps: []", "x.yaml: steps: must have at least 1 entry"),
        ("steps: [{name: a, pushs: 1}]", "x.yaml: steps[0].pushs: unknown key; did you mean pushes?"),
        (
            "steps: [{name: a, error: NOPE}]",
            'x.yaml: steps[0].error: "NOPE": is no error of Kafka that the kit knows; write one of BROKER',
        ),
        (
            "steps: [{name: a, subscription: {interval_ms: 1}}]",
            "x.yaml: steps[0].subscription.interval_ms: 1: ",
        ),
        ("steps: [", "x.yaml: "),
    ],
)
def test_a_mistake_in_a_script_names_its_place(text: str, error: str) -> None:
    with pytest.raises(ScriptError) as raised:
        parse_script(text, "x.yaml")
    assert str(raised.value).startswith(error)


def test_a_missing_file_names_the_built_in_scripts(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="name a file, or one of default, invalid-record"):
        load_script(str(tmp_path / "none.yaml"))
