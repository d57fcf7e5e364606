"""Every route: the roles that may use it, and the audit log of changes."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from fastapi.routing import APIRoute
from starlette.routing import Route

from receiver.api.authorization import _CHALLENGE
from receiver.api.console.assets import console
from receiver.log import configure
from receiver.settings.model import LogSettings
from receiver.wire.uuid import uuid_to_text
from tests.unit.api.conftest import (
    EDITOR_TOKEN,
    VIEWER_TOKEN,
    Api,
    bearer,
    instance_id,
    problem_of,
    token_settings,
    whole,
)

#: They change nothing of the receiver.
FOR_VIEWERS = {("POST", "/v1/explain"), ("POST", "/v1/session"), ("DELETE", "/v1/session")}

BODY = {"metrics": ["a."], "interval_ms": 60_000, "match": {}}


@pytest.fixture
def guarded(api: Api) -> Api:
    api.settings = token_settings()
    return api


def routes_of(api: Api) -> list[tuple[str, str]]:
    """Every method and path that is routed."""
    app = asyncio.run(api.app())

    def below(routes: Any) -> list[Route | APIRoute]:
        found: list[Route | APIRoute] = []
        for route in routes:
            inner = getattr(getattr(route, "original_router", route), "routes", None)
            if isinstance(route, Route | APIRoute):
                found.append(route)
            elif inner is not None:
                found += below(inner)
            else:
                raise AssertionError(f"what is {route!r}?")
        return found

    names = {
        "{name:path}": "s",
        "{client_instance_id}": uuid_to_text(instance_id(2)),
        "{build}": console().build,
        "{name}": "app.js",
    }
    found = []
    for route in below(app.routes):
        path = route.path
        for parameter, value in names.items():
            path = path.replace(parameter, value)
        found += [(method, path) for method in sorted(route.methods or ())]
    return found


def test_every_route_checks_the_role(guarded: Api) -> None:
    found = routes_of(guarded)
    assert ("PUT", "/v1/subscriptions/s") in found
    assert ("GET", "/openapi.json") in found
    assert len(found) >= 11
    # A response to HEAD has no body to check. HEAD needs the same role as GET.
    found = [(method, path) for method, path in found if method != "HEAD"]
    found += [("GET", "/v1/nonsense"), ("POST", "/v1/nonsense"), ("PATCH", "/livez"), ("GET", "/livez/")]

    async def scenario(rest: httpx.AsyncClient) -> None:
        for method, path in found:
            is_open = method == "GET" and (path in {"/", "/livez", "/readyz"} or path.startswith("/console/"))
            rest.cookies.clear()
            content = b"{}" if method in {"PUT", "POST", "PATCH"} else None
            answer = await rest.request(method, path, content=content)
            if is_open:
                assert answer.status_code == 200, path
            else:
                assert problem_of(answer, 401)["detail"] == (
                    "authentication is needed: a token of rest.tokens as `Authorization: Bearer TOKEN`"
                )
                assert answer.headers["www-authenticate"] == _CHALLENGE
                answer = await rest.request(method, path, content=content, headers=bearer("not-a-token"))
                problem_of(answer, 401)
                assert "not-a-token" not in str(answer.headers) + answer.text
                assert answer.headers["www-authenticate"] == f'{_CHALLENGE}, error="invalid_token"'
            answer = await rest.request(method, path, content=content, headers=bearer(VIEWER_TOKEN))
            if method in {"GET", "HEAD", "OPTIONS"} or (method, path) in FOR_VIEWERS:
                assert answer.status_code not in {401, 403}, (method, path)
            else:
                assert "needs the role editor" in problem_of(answer, 403)["detail"]
            answer = await rest.request(method, path, content=content, headers=bearer(EDITOR_TOKEN))
            assert answer.status_code not in {401, 403}, (method, path)

    guarded.run(scenario)
    assert set(guarded.refused) == {"no_credentials", "unknown_token", "role"}


def test_metrics_can_be_open_to_everybody(api: Api) -> None:
    found = []

    async def scenario(rest: httpx.AsyncClient) -> None:
        found.append([(await rest.get(f"/{item}")).status_code for item in ("livez", "readyz", "metrics")])

    for opened in ([], ["metrics"]):
        api.settings = token_settings(open=opened)
        api.run(scenario)
    assert found == [[401, 401, 401], [401, 401, 200]]


def test_with_authentication_any_host_is_accepted(guarded: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        assert (await rest.get("/v1/clients", headers=bearer(VIEWER_TOKEN))).status_code == 200
        problem_of(await rest.get("/v1/clients"), 401)

    guarded.run(scenario, host="telemetry.example")


def test_headers_that_are_too_long(guarded: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        problem_of(await rest.get("/livez", headers={"x": "y" * 20_000}), 431)
        problem_of(await rest.get("/livez", params={"x": "y" * 20_000}), 431)

    guarded.run(scenario)


def audit_lines(lines: Any) -> list[dict[str, Any]]:
    return [dict(line) for line in lines if line.get("logger") == "receiver.audit"]


def test_every_change_is_audited(guarded: Api) -> None:
    after = whole("a b", BODY, changed_by="ed")
    del after["state"]
    changed = {**after, "interval_ms": 1000}
    common = {
        "event": "change",
        "logger": "receiver.audit",
        "log_level": "info",
        "who": "ed",
        "role": "editor",
        "authenticated_by": "token",
        "source_address": "127.0.0.1",
        "path": "/v1/subscriptions/a%20b",
    }

    async def scenario(rest: httpx.AsyncClient) -> None:
        async def ask(method: str, *, token: str = EDITOR_TOKEN, **arguments: Any) -> int:
            answer = await rest.request(method, "/v1/subscriptions/a%20b", headers=bearer(token), **arguments)
            return answer.status_code

        assert await ask("PUT", json=BODY) == 201
        assert await ask("PUT", json={**BODY, "interval_ms": 1000}) == 200
        assert await ask("PUT", json={**BODY, "interval_ms": 1}) == 422
        assert await ask("GET") == 200
        assert await ask("DELETE", token=VIEWER_TOKEN) == 403
        assert await ask("DELETE") == 204
        assert await ask("DELETE") == 404
        answer = await rest.delete("/v1/subscriptions/a%20b?token=hunter2", headers=bearer(EDITOR_TOKEN))
        assert problem_of(answer, 422)["errors"] == [
            {"field": "token", "value": None, "detail": "unknown parameter"}
        ]
        assert "hunter2" not in answer.text

    with structlog.testing.capture_logs() as lines:
        guarded.run(scenario)
    put, delete = {**common, "method": "PUT"}, {**common, "method": "DELETE"}
    assert audit_lines(lines) == [
        {**put, "outcome": "changed", "status": 201, "before": None, "after": after},
        {**put, "outcome": "changed", "status": 200, "before": after, "after": changed},
        {**put, "outcome": "failed", "status": 422},
        {**delete, "who": "vera", "role": "viewer", "outcome": "refused", "status": 403},
        {**delete, "outcome": "changed", "status": 204, "before": changed, "after": None},
        {**delete, "outcome": "failed", "status": 404},
        {**delete, "outcome": "failed", "status": 422},
    ]
    assert all(secret not in str(lines) for secret in (EDITOR_TOKEN, VIEWER_TOKEN, "hunter2"))


def test_every_changing_route_audits_the_documents(guarded: Api, tmp_path: Path) -> None:
    guarded.owner_file = tmp_path / "owners.json"
    bodies = {
        "subscriptions": {"PUT": BODY, "PATCH": {"enabled": False}},
        "owners": {"PUT": {"match": {}}, "PATCH": {"contact": "#pay"}},
    }
    changing = [
        route
        for route in routes_of(guarded)
        if route[0] not in {"GET", "HEAD", "OPTIONS"} and route not in FOR_VIEWERS
    ]

    async def scenario(rest: httpx.AsyncClient) -> None:
        for method, path in sorted(changing, reverse=True):  # PUT before DELETE
            answer = await rest.request(
                method,
                path,
                headers=bearer(EDITOR_TOKEN),
                json=bodies[path.split("/")[2]].get(method),
            )
            assert answer.is_success, (method, path, answer.text)

    with structlog.testing.capture_logs() as lines:
        guarded.run(scenario)
    audited = audit_lines(lines)
    assert len(audited) == len(changing) == 6
    assert all(line["before"] != line["after"] for line in audited)


def test_a_change_that_fails_is_audited(guarded: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        answer = await rest.put("/v1/subscriptions/s", headers=bearer(EDITOR_TOKEN), json=BODY)
        problem_of(answer, 500)

    def broken(*_: Any) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(guarded.store, "put", broken)
    with structlog.testing.capture_logs() as lines:
        guarded.run(scenario)
    assert [(line["outcome"], line["status"]) for line in audit_lines(lines)] == [("failed", 500)]


def test_refusals_are_counted_and_logged_at_a_limited_rate(guarded: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        for number in range(50):
            await rest.put("/v1/subscriptions/s", headers=bearer(f"guess-{number}"), json=BODY)

    with structlog.testing.capture_logs() as lines:
        guarded.run(scenario)
    assert guarded.refused == ["unknown_token"] * 50
    assert [(line["reason"], line["method"], line["source_address"]) for line in lines] == [
        ("unknown_token", "PUT", "127.0.0.1")
    ]
    assert "guess" not in str(lines)


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_level_silences_the_audit_log_and_no_path_forges_a_line(
    api: Api, capsys: pytest.CaptureFixture[str], form: Any
) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        await rest.delete("/v1/subscriptions/x%0Aforged%1b[2J")

    configure(LogSettings(level="error", format=form))
    try:
        api.run(scenario)
    finally:
        structlog.reset_defaults()
    written = capsys.readouterr().err
    assert "receiver.audit" in written
    assert "anonymous" in written
    assert written.count("\n") == 1
    assert "\x1b" not in written
