"""Plugins over REST: queues, counters and errors."""

from dataclasses import replace
from pathlib import Path

import httpx

from receiver.host.delivery.statistics import DropReason
from receiver.host.host import PluginHost
from tests.unit.api.conftest import Api
from tests.unit.host.support import Single, hosted, push, took


def test_plugins_in_the_order_of_the_configuration(api: Api, tmp_path: Path) -> None:
    host = PluginHost(
        [
            hosted(Single(took), name="second", queue={"max_items": 2}),
            hosted(
                Single(took),
                name="first",
                delivery="spool_when_behind",
                isolation="thread",
                spool={"path": str(tmp_path / "spool"), "max_bytes": 2_000_000},
            ),
        ]
    )
    for number in range(3):
        host.offer(push(number))
    api.plugins = [
        replace(shown, lag_seconds=1.23456, spool_problem=problem, last_error="said")
        for shown, problem in zip(host.statistics(), (None, "spool: No space left on device"), strict=True)
    ]

    async def scenario(rest: httpx.AsyncClient) -> None:
        second, first = (await rest.get("/v1/plugins")).json()["items"]
        assert second == {
            "name": "second",
            "type": "test",
            "state": "new",
            "delivery": "memory",
            "isolation": "thread",
            "circuit": "closed",
            "queue": {"pushes": 2, "bytes": 20, "max_pushes": 2, "max_bytes": 67_108_864},
            "spool": None,
            "files_problem": None,
            "waiting": {"pushes": 2, "bytes": 20, "used_percent": 100.0, "full_in_s": None, "away_s": 0},
            "in_flight": 0,
            "lag_s": 1.235,
            "offered": 3,
            "recovered": 0,
            "exported": 0,
            "dropped": dict.fromkeys(DropReason, 0) | {"queue_full": 1},
            "rejected_points": 0,
            "failures": 0,
            "consecutive_failures": 0,
            "restarts": 0,
            "call_s": 0.0,
            "last_error": "said",
        }
        assert (first["name"], first["delivery"], first["queue"]["pushes"]) == (
            "first",
            "spool_when_behind",
            3,
        )
        assert first["spool"] == {
            "pushes": 0,
            "bytes": 0,
            "max_bytes": 2_000_000,
            "problem": "spool: No space left on device",
        }

    api.run(scenario)
    assert not (tmp_path / "spool").exists()


def test_no_plugins(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        assert (await rest.get("/v1/plugins")).json() == {"items": [], "next": None}

    api.run(scenario)
