"""The scripted client of the test kit passes the receiver and a real broker with a plugin."""

from __future__ import annotations

import pytest

from benchmarks.testkit.brokers import judged, page


@pytest.mark.full
def test_receiver_and_kafka_pass_the_same_checks() -> None:
    found = judged()
    failures = {
        name: {j.check.id for j in broker.judgements if j.verdict.passed is not True}
        for name, broker in found.items()
    }
    assert failures["receiver"] == set()
    # Kafka 4.4 closes the connection of null metrics, does not parse metrics without a codec, and
    # lacks version 1 of the requests.
    assert failures["Kafka 4.4 with a plugin"] == {"BK-034", "BK-045", "BK-047"}
    assert "| receiver |" in page(found)
