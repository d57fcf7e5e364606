"""No value of a request is an internal error: a corpus for each parameter, header and field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from receiver.telemetry.subscription_document import FIELDS, READ_ONLY_FIELDS
from tests.unit.api.conftest import Api, ask, connection
from tests.unit.hostile_values import NUMBERS, TEXTS, TIMES, VALUES

PATH = "/v1/subscriptions/s"
TEXT_VALUES = (*TIMES, *NUMBERS, *TEXTS)


def quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation.get("parameters", [])


def check(answer: httpx.Response, what: object) -> None:
    assert answer.status_code < 500, (what, answer.text)
    if answer.status_code >= 400:
        assert answer.json()["detail"], what


@pytest.mark.full
def test_no_parameter_is_an_internal_error(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        for number in range(2, 5):
            ask(api.telemetry, number, api.clock.now)
        api.connections.extend(connection(number) for number in range(3))
        events = (await rest.get("/v1/events")).json()["next"].rpartition("-")[0]
        document = (await rest.get("/openapi.json")).json()
        tried = 0
        for method, path, parameters in operations(document):
            for parameter in parameters:
                place, name = parameter["in"], parameter["name"]
                texts = [*TEXT_VALUES, *(f"{events}-{text}" for text in TEXT_VALUES)]
                texts += [f"{text}/x" for text in NUMBERS]  # the cursor of connections
                for text in texts:
                    at, query, headers = path, "", {}
                    if place == "path":
                        at = path.replace(f"{{{name}}}", quoted(text))
                    elif place == "query":
                        query = f"?{name}={quoted(text)}"
                    elif not text.isprintable() or not text.isascii():
                        headers = {name: text.encode("utf-8", "surrogatepass").replace(b"\0", b"")}
                    else:
                        headers = {name: text.encode()}
                    for other in parameters:
                        at = at.replace(f"{{{other['name']}}}", "s")
                    check(await rest.request(method, at + query, headers=headers), (method, path, name, text))
                    tried += 1
        assert tried > 2000

    api.run(scenario)


@pytest.mark.parametrize(
    "field",
    [
        field if field in {"match", "interval_ms"} else pytest.param(field, marks=pytest.mark.full)
        for field in ("name", *FIELDS, *READ_ONLY_FIELDS, "add_metrics", "remove_metrics")
    ],
)
def test_no_field_of_a_body_is_an_internal_error(api: Api, field: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        values = list(VALUES)
        if field in ("match", "labels"):
            values += [{"client_id": item} for item in VALUES]
            values += [{item: "x"} for item in TEXT_VALUES]
        elif field.endswith("metrics"):
            values += [[item] for item in VALUES]
        for value in values:
            document = {"metrics": ["a."], field: value}
            await rest.put(PATH, json={"metrics": ["a."]})
            content = json.dumps(document).encode()
            for method, path, kind in (
                ("PUT", PATH, "application/json"),
                ("PATCH", PATH, "application/merge-patch+json"),
                ("POST", "/v1/explain", "application/json"),
            ):
                answer = await rest.request(method, path, content=content, headers={"content-type": kind})
                check(answer, (method, field, value))
            check(await rest.get("/v1/subscriptions"), ("list after", field, value))

    api.run(scenario)


@pytest.mark.parametrize("key", TEXT_VALUES, ids=lambda text: ascii(text[:20]))
def test_no_key_of_a_body_is_an_internal_error(api: Api, key: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        content = json.dumps({"metrics": ["a."], key: []}).encode()
        for method, path in (("PUT", PATH), ("POST", "/v1/explain")):
            answer = await rest.request(
                method, path, content=content, headers={"content-type": "application/json"}
            )
            check(answer, (method, key))

    api.run(scenario)


@pytest.mark.parametrize(
    "content", [b"", b"[" * 60_000, b"9" * 60_000, b'"\\ud800"', b"\xff", b"nul", b"NaN", b'{"a":1,"a":2}']
)
def test_no_body_is_an_internal_error(api: Api, content: bytes) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        for length in (None, "²".encode(), b"9" * 5000, b"-1"):
            headers: dict[str, Any] = {"content-type": "application/json"}
            if length is not None:
                headers["content-length"] = length
            check(await rest.request("PUT", PATH, content=content, headers=headers), content[:20])

    api.run(scenario)


@pytest.mark.parametrize("text", TIMES[:2])
def test_a_time_outside_the_calendar_names_the_field_the_value_and_the_fix(api: Api, text: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        answer = await rest.put(PATH, json={"metrics": ["a."], "expires_at": text})
        assert answer.status_code == 422
        (error,) = answer.json()["errors"]
        assert (error["field"], error["value"]) == ("expires_at", text)
        assert "2030-01-31T12:00:00Z" in error["detail"]
        assert (await rest.get("/v1/subscriptions")).json()["items"] == []

    api.run(scenario)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: ascii(text[:20]))
def test_the_id_of_no_event_begins_with_the_oldest(api: Api, number: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        await rest.put(PATH, json={"metrics": ["a."]})
        name = (await rest.get("/v1/events")).json()["next"].rpartition("-")[0]
        answer = await rest.get("/v1/events", headers={b"last-event-id": f"{name}-{number}".encode()})
        assert (len(answer.json()["items"]), answer.json()["lost"]) == (1, True)

    api.run(scenario)
