from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import structlog
from pydantic import SecretBytes, SecretStr
from structlog.testing import capture_logs

from receiver.host.failure_log import FailureLog
from receiver.host.redaction import Redaction
from receiver.plugin import PluginConfig


class Inner(PluginConfig):
    key: SecretBytes = SecretBytes(b"inner-secret")


class Config(PluginConfig):
    token: SecretStr = SecretStr("outer-secret")
    longer: SecretStr = SecretStr("outer-secret-and-more")
    short: SecretStr = SecretStr("a")
    headers: dict[str, SecretStr]
    several: tuple[Inner, ...] = (Inner(),)
    plain: str = "plain"


CONFIG = Config(headers={"x": SecretStr("header-secret")})


def test_secrets_are_found_wherever_they_are_in_the_settings() -> None:
    text = Redaction(CONFIG).text("outer-secret-and-more outer-secret header-secret inner-secret plain a")
    assert text == f"{'*' * 10} {'*' * 10} {'*' * 10} {'*' * 10} plain a"


def test_text_is_one_bounded_line() -> None:
    assert Redaction(None).text("a\r\nb\x1b[31m\u2028c") == "a  b [31m c"
    assert len(Redaction(None).text("x" * 10_000)) == 300


def test_an_exception_tells_its_place() -> None:
    try:
        raise ValueError("outer-secret")
    except ValueError as error:
        text = Redaction(CONFIG).exception(error)
    assert text.startswith("ValueError at test_failure_log.py:")
    assert text.endswith(": **********")


def test_each_kind_of_line_comes_once_in_an_interval_and_counts_the_rest() -> None:
    now = 100.0
    log = FailureLog("p", interval_s=10, clock=lambda: now)
    with capture_logs() as logs:
        for _ in range(5):
            log.limited("a")
        log.limited("b")
        now = 110.0
        log.limited("a")
        log.limited("a")
        now = 130.0
        log.limited("a")
    assert [(line["event"], line.get("suppressed", 0)) for line in logs] == [
        ("a", 0),
        ("b", 0),
        ("a", 4),
        ("a", 1),
    ]
    assert all(line["plugin"] == "p" for line in logs)


def test_a_log_that_cannot_be_written_raises_nothing() -> None:
    with Path("/dev/full").open("w") as full:
        structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=full))
        try:
            log = FailureLog("p")
            log.limited("a")
            log.info("b")
            log.error("c")
        finally:
            structlog.reset_defaults()
            with suppress(OSError):
                full.close()
