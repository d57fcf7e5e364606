"""Secrets of headers are masked in what a destination answers, and words are not."""

from __future__ import annotations

from plugins._shared.destination import redact
from plugins.otlp import OtlpConfig


def test_secrets_are_masked_and_letters_are_not() -> None:
    config = OtlpConfig.model_validate(
        {"endpoint": "http://127.0.0.1:4318", "headers": {"authorization": "Bearer s3cret", "x-flag": "e"}}
    )
    assert redact("refused: Bearer s3cret", config) == "refused: **********"
