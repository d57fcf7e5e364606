"""Every quirk that the receiver treats is found by a check of the test kit."""

from __future__ import annotations

import pytest

from receiver.telemetry.quirks import BUILT_IN_QUIRKS, Quirk
from receiver.testkit.checks.table import CHECKS
from tests.unit.testkit.scripted_client import ScriptedClient, Told, verdicts


@pytest.mark.parametrize("quirk", BUILT_IN_QUIRKS, ids=lambda quirk: quirk.client_software_version)
def test_a_rule_names_checks_that_exist(quirk: Quirk) -> None:
    assert quirk.checks
    assert set(quirk.checks) <= {check.id for check in CHECKS}


class DiesOfItsCodec(ScriptedClient):
    """As Java clients without zstd's library: its network thread ends, its connections don't."""

    def push(self, *, terminating: bool = False) -> None:
        self.stopped = True

    def goodbye(self, told: Told) -> bool:
        return False

    def close(self) -> None:
        pass


def test_a_network_thread_that_dies_of_a_codec_is_found() -> None:
    judged = verdicts(DiesOfItsCodec, seconds=20)
    failed = {j.check.id: j.verdict.seen for j in judged.judgements if j.verdict.passed is False}
    assert failed == {"TK-024": "no push in 21.0 s after the subscription of step 'all metrics'"}
