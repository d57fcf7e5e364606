"""The test kit under its public name, with a pytest fixture.

A test of a Kafka client uses the fixture ``kafka_testkit``, after this line in ``conftest.py``::

    pytest_plugins = ["kafka_client_telemetry.testkit"]

Without pytest, ``TestKit`` is a context manager.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from receiver.testkit.checks.check import Check, Severity, Verdict
from receiver.testkit.checks.judged import Judgement
from receiver.testkit.judge import ClientJudgement
from receiver.testkit.kit import Credentials
from receiver.testkit.script import Script, ScriptError, parse_script
from receiver.testkit.threaded import TestKit

__all__ = [
    "Check",
    "ClientJudgement",
    "Credentials",
    "Judgement",
    "Script",
    "ScriptError",
    "Severity",
    "TestKit",
    "Verdict",
    "parse_script",
]

with contextlib.suppress(ImportError):  # pytest is the caller's
    import pytest

    @pytest.fixture
    def kafka_testkit() -> Iterator[TestKit]:
        """Two brokers that run the default script; see :class:`TestKit`."""
        with TestKit() as kit:
            yield kit
