"""Judges the test kit, the receiver and a Kafka broker with a plugin by one scripted client.

``python -m benchmarks.testkit.brokers`` writes ``brokers.md`` beside this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from receiver.settings.hostport import HostPort
from receiver.testkit.broker_checks import BROKER_CHECKS, BrokerJudgement, judge_broker
from receiver.testkit.threaded import TestKit
from tests.testbed.broker import KafkaBroker
from tests.testbed.ports import free_port
from tests.testbed.sidecar import Sidecar, config_for

_PAGE: Final = Path(__file__).with_name("brokers.md")
_INTERVAL_MS: Final = 1000

_HEAD: Final = """\
# Brokers, judged by the test kit's scripted client

<!-- Made by `python -m benchmarks.testkit.brokers`; run that, and don't edit this page. -->

`kafka-telemetry testkit --against HOST:PORT` asked the same of each. The test kit itself does not
throttle or refuse a client for what it judges.
"""
_MARKS: Final = {True: "yes", None: "not tried"}


def judged() -> dict[str, BrokerJudgement]:
    """Start each and judge it; they have one subscription for everybody."""
    found = {}
    with TestKit() as kit:
        found["test kit"] = _judge(kit.bootstrap_servers.split(",")[0])
    with KafkaBroker(advertised_client_port=free_port()) as broker, Sidecar(config_for(broker)) as sidecar:
        sidecar.put_subscription("all", ["*"], interval_ms=_INTERVAL_MS)
        found["receiver"] = _judge(sidecar.bootstrap())
    with KafkaBroker(telemetry_plugin=True) as broker:
        broker.alter_client_metrics("all", ("*",), _INTERVAL_MS, {})
        found["Kafka 4.4 with a plugin"] = _judge(broker.bootstrap)
    return found


def _judge(address: str) -> BrokerJudgement:
    return judge_broker(HostPort.parse(address))


def page(found: Mapping[str, BrokerJudgement]) -> str:
    """Return the page: a column for each broker."""
    lines = [
        _HEAD,
        f"\n| check | severity | a good broker … | {' | '.join(found)} |\n",
        f"|---|---|---|{'---|' * len(found)}\n",
    ]
    for index, check in enumerate(BROKER_CHECKS):
        verdicts = [broker.judgements[index].verdict for broker in found.values()]
        cells = [_MARKS.get(verdict.passed) or verdict.seen for verdict in verdicts]
        lines.append(f"| {check.id} | {check.severity} | {check.title} | {' | '.join(cells)} |\n")
    return "".join(lines)


if __name__ == "__main__":
    _PAGE.write_text(page(judged()))
