"""Events: a list that can be followed, and a stream that ends and goes on."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import httpx
import pytest

from receiver.api.events import MAX_EVENTS, EventLog
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from receiver.wire.uuid import uuid_to_text
from tests.unit.api.conftest import WALL_NS, WALL_TEXT, Api, ask, instance_id, problem_of

STREAM = {"accept": "text/event-stream"}


def kinds(events: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(event["type"], event["subscription"]) for event in events]


def test_changes_and_clients_are_events(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        first = (await rest.get("/v1/events")).json()
        assert (first["items"], first["lost"]) == ([], False)
        body = {"metrics": ["org.apache.kafka."]}
        await rest.put("/v1/subscriptions/s", json=body)
        await rest.put("/v1/subscriptions/s", json=body)  # changes nothing
        await rest.put("/v1/subscriptions/s", json={**body, "interval_ms": 1000})
        ask(api.telemetry, 2, api.clock.now)
        api.telemetry.instances.disconnected("CLIENT-2")
        await rest.delete("/v1/subscriptions/s")
        page = (await rest.get("/v1/events", params={"after": first["next"], "limit": 2})).json()
        assert kinds(page["items"]) == [("subscription_created", "s"), ("subscription_changed", "s")]
        rest_of_it = (await rest.get("/v1/events", params={"after": page["next"]})).json()
        text = uuid_to_text(instance_id(2))
        assert rest_of_it["items"] == [
            {
                "id": rest_of_it["items"][0]["id"],
                "time": WALL_TEXT,
                "type": "client_created",
                "subscription": None,
                "client_instance_id": text,
                "client_id": "orders",
                "owner": None,
            },
            {**rest_of_it["items"][1], "type": "client_forgotten", "client_instance_id": text},
            {**rest_of_it["items"][2], "type": "subscription_deleted", "subscription": "s"},
        ]
        last = (await rest.get("/v1/events", params={"after": rest_of_it["next"]})).json()
        assert (last["items"], last["next"], last["lost"]) == ([], rest_of_it["next"], False)
        # The id of another process.
        other = (await rest.get("/v1/events", params={"after": "abc-7"})).json()
        assert (len(other["items"]), other["lost"]) == (5, True)

    api.run(scenario)


def test_a_reader_that_is_too_far_behind_learns_it() -> None:
    log = EventLog(lambda: WALL_NS)
    start = log.last_id
    many = SubscriptionSet(Subscription(f"s{n:03}", ("a.",)) for n in range(600))
    log.subscriptions_replaced(SubscriptionSet(), many)
    assert log.after(start, 10)[1] is False
    log.subscriptions_replaced(many, SubscriptionSet())
    events, lost = log.after(start, 10)
    assert lost
    assert events[0].number == 1200 - MAX_EVENTS + 1
    assert log.after(log.event_id(events[0].number - 1), 10) == (events, False)
    log.subscription_expired("s")
    assert log.after(log.event_id(1200), 10)[0][0].type == "subscription_expired"


async def lines_of(api: Api, headers: dict[str, str], change: Any, wanted: int) -> list[str]:
    """Return the first lines of a stream, whose change happens once the stream is open."""
    found: list[str] = []
    async with (
        api.serving() as server,
        httpx.AsyncClient(base_url=f"http://{server.address}", timeout=60) as rest,
        rest.stream("GET", "/v1/events", headers=headers, timeout=60) as stream,
    ):
        assert stream.headers["content-type"].startswith("text/event-stream")
        async for line in stream.aiter_lines():
            if not found:
                change()
            if line:
                found.append(line)
            if len(found) >= wanted:
                break
    return found


def test_a_stream_goes_on_after_the_last_event(api: Api) -> None:
    api.settings = api.settings.model_copy(update={"bind": type(api.settings.bind)(host="127.0.0.1", port=0)})

    async def scenario() -> None:
        seen = await lines_of(api, STREAM, lambda: ask(api.telemetry, 2, api.clock.now), 5)
        assert seen[0] == "retry: 100"
        assert seen[3] == "event: client_created"
        assert json.loads(seen[4].removeprefix("data: "))["client_id"] == "orders"
        begin = {**STREAM, "last-event-id": seen[1].removeprefix("id: ")}
        again = await lines_of(api, begin, lambda: None, 5)
        assert again[2:] == seen[2:]
        elsewhere = await lines_of(api, {**STREAM, "last-event-id": "abc-1"}, lambda: None, 4)
        assert elsewhere[2] == "event: lost"

    asyncio.run(scenario())


def test_a_stream_ends_by_itself(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.api.routes.events._STREAM_S", 0.05)

    async def scenario(rest: httpx.AsyncClient) -> None:
        answer = await rest.get("/v1/events", headers=STREAM)
        assert answer.status_code == 200
        assert answer.text.startswith("retry: 100\n")

    api.run(scenario)


def test_streams_are_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.api.routes.events._MAX_STREAMS", 0)

    async def scenario(rest: httpx.AsyncClient) -> None:
        problem_of(await rest.get("/v1/events", headers=STREAM), 429)
        assert (await rest.get("/v1/events")).status_code == 200
        assert (await rest.head("/v1/events", headers=STREAM)).status_code == 200

    api.run(scenario)


async def one_opens(rest: httpx.AsyncClient) -> None:
    """Wait until there is room for a stream."""
    async with asyncio.timeout(300):
        while True:
            async with rest.stream("GET", "/v1/events", headers=STREAM, timeout=300) as answer:
                if answer.status_code == 200:
                    return
                assert answer.status_code == 429
            await asyncio.sleep(0.05)


def test_no_more_streams_open_at_the_same_moment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.api.routes.events._MAX_STREAMS", 3)
    api.settings = api.settings.model_copy(update={"bind": type(api.settings.bind)(host="127.0.0.1", port=0)})

    async def scenario() -> None:
        async with (
            api.serving() as server,
            httpx.AsyncClient(base_url=f"http://{server.address}", timeout=60) as rest,
        ):
            found: list[int] = []
            all_answered = asyncio.Event()

            async def ask_for_one() -> None:
                async with rest.stream("GET", "/v1/events", headers=STREAM, timeout=300) as answer:
                    found.append(answer.status_code)
                    if len(found) == 20:
                        all_answered.set()
                    await all_answered.wait()

            await asyncio.gather(*(ask_for_one() for _ in range(20)))
            assert sorted(found) == [200] * 3 + [429] * 17

            # Those that have ended make room.
            await one_opens(rest)

    asyncio.run(scenario())


def test_a_reader_that_never_reads_gives_its_place_back(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.api.routes.events._MAX_STREAMS", 1)
    monkeypatch.setattr("receiver.api.connection._ANSWER_S", 2.0)
    api.settings = api.settings.model_copy(update={"bind": type(api.settings.bind)(host="127.0.0.1", port=0)})
    request = b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"

    async def scenario() -> None:
        async with (
            api.serving() as server,
            httpx.AsyncClient(base_url=f"http://{server.address}", timeout=60) as rest,
        ):
            host, _, port = str(server.address).rpartition(":")
            reader, silent = await asyncio.open_connection(host, int(port))
            silent.write(request)
            # Its stream is open before anybody else asks. Then it reads no more.
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await one_opens(rest)
            async with asyncio.timeout(300):
                with suppress(ConnectionResetError):
                    await reader.read()
            silent.close()

    asyncio.run(scenario())
