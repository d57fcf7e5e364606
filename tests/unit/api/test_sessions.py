"""A session in the place of a token: its cookie, its end, and requests of other pages."""

import asyncio

import httpx
import pytest
import structlog

from receiver.api.authentication import Authenticator
from receiver.api.sessions import COOKIE_NAME, CSRF_HEADER, MAX_SESSIONS, SESSION_S, Sessions, cookie_header
from receiver.settings.rest import RestSettings
from tests.unit.api.conftest import EDITOR_TOKEN, VIEWER_TOKEN, Api, Clock, bearer, problem_of, token_settings

BODY = {"metrics": ["a."]}
SUBSCRIPTION = "/v1/subscriptions/s"


@pytest.fixture
def guarded(api: Api) -> Api:
    api.settings = token_settings()
    return api


async def log_in(rest: httpx.AsyncClient, token: str) -> dict[str, str]:
    """Open a session, whose cookie the client keeps, and return the header against CSRF."""
    answer = await rest.post("/v1/session", headers=bearer(token))
    assert answer.status_code == 200
    assert token not in answer.text + str(answer.headers)
    return {CSRF_HEADER: answer.json()["csrf_token"]}


def test_a_session_has_the_rights_of_its_token(guarded: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        csrf = await log_in(rest, EDITOR_TOKEN)
        shown = (await rest.get("/v1/session")).json()
        assert shown == {
            "name": "ed",
            "role": "editor",
            "authenticated_by": "session",
            "csrf_token": csrf[CSRF_HEADER],
        }
        with structlog.testing.capture_logs() as written:
            assert (await rest.put(SUBSCRIPTION, json=BODY, headers=csrf)).status_code == 201
        (line,) = [line for line in written if line["event"] == "change"]
        assert (line["who"], line["authenticated_by"], line["outcome"]) == ("ed", "session", "changed")
        csrf = await log_in(rest, VIEWER_TOKEN)
        assert (await rest.get("/v1/clients")).status_code == 200
        assert (await rest.post("/v1/explain", json=BODY, headers=csrf)).status_code == 200
        assert "role editor" in problem_of(await rest.delete(SUBSCRIPTION, headers=csrf), 403)["detail"]

    guarded.run(scenario)


def test_the_cookie_is_hidden_from_scripts_and_other_sites(guarded: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        answer = await rest.post("/v1/session", headers=bearer(EDITOR_TOKEN))
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE_NAME}=")
        assert {"Path=/", "HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))

    guarded.run(scenario)
    over_tls = cookie_header("value", secure=True)
    assert over_tls.startswith(f"__Host-{COOKIE_NAME}=value; ")
    assert "Secure" in over_tls.split("; ")


@pytest.mark.parametrize("given", [{}, {CSRF_HEADER: "guessed"}, {CSRF_HEADER: ""}])
def test_a_change_needs_the_header_that_other_pages_cannot_send(guarded: Api, given: dict[str, str]) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        await log_in(rest, EDITOR_TOKEN)
        for method, path in (("PUT", SUBSCRIPTION), ("POST", "/v1/explain"), ("DELETE", "/v1/session")):
            answer = await rest.request(method, path, json=BODY, headers=given)
            assert CSRF_HEADER in problem_of(answer, 403)["detail"]
        assert (await rest.get("/v1/subscriptions")).json()["items"] == []
        # A token alone needs no such header, because no browser sends it by itself.
        assert (await rest.put(SUBSCRIPTION, json=BODY, headers=bearer(EDITOR_TOKEN))).status_code == 201

    guarded.run(scenario)
    assert guarded.refused == ["csrf"] * 3


def test_it_ends_by_the_caller(guarded: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        csrf = await log_in(rest, VIEWER_TOKEN)
        kept = dict(rest.cookies)
        answer = await rest.delete("/v1/session", headers=csrf)
        assert answer.status_code == 204
        assert "Max-Age=0" in answer.headers["set-cookie"]
        problem_of(
            await rest.get("/v1/clients", headers={"cookie": f"{COOKIE_NAME}={kept[COOKIE_NAME]}"}), 401
        )

    guarded.run(scenario)
    assert guarded.refused == ["unknown_session"]


def test_it_ends_with_its_token_and_outlives_a_reload_with_it() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    before = Authenticator(token_settings(), clock, sessions)
    opened = before.open_session(f"Bearer {EDITOR_TOKEN}".encode())
    assert opened is not None
    cookie = [f"{COOKIE_NAME}={opened[0]}".encode()]
    tokens = token_settings().tokens
    for kept, known in ((tokens, True), (tokens[:1], False)):
        after = Authenticator(RestSettings(tokens=kept), clock, sessions)
        assert (after.authenticate([], None, cookie) != "unknown_session") is known
    clock.now += SESSION_S
    assert before.authenticate([], None, cookie) == "unknown_session"


def test_only_a_token_opens_one(api: Api, guarded: Api) -> None:
    async def without(rest: httpx.AsyncClient) -> None:
        answer = await rest.post("/v1/session")
        assert problem_of(answer, 409)
        assert "set-cookie" not in answer.headers
        assert (await rest.get("/v1/session")).json() == {
            "name": "anonymous",
            "role": "editor",
            "authenticated_by": "nothing",
            "csrf_token": None,
        }

    async def wrong(rest: httpx.AsyncClient) -> None:
        problem_of(await rest.post("/v1/session", headers=bearer("not-a-token")), 401)
        csrf = await log_in(rest, VIEWER_TOKEN)
        problem_of(await rest.post("/v1/session", headers=csrf), 409)

    guarded.run(wrong)
    api.settings = RestSettings()
    api.run(without)


def test_the_oldest_makes_room() -> None:
    sessions = Sessions(Clock())
    values = [sessions.open(b"digest")[0] for _ in range(MAX_SESSIONS + 1)]
    assert sessions.find(values[0]) is None
    assert all(sessions.find(value) is not None for value in values[1:])


@pytest.mark.parametrize("cookie", [b"", b"\xff\xfe", b"=;;=,", COOKIE_NAME.encode(), b'a="\\\x00"; b'])
def test_a_malformed_cookie_is_no_session(cookie: bytes) -> None:
    authenticator = Authenticator(token_settings())
    assert authenticator.authenticate([], None, [cookie]) == "no_credentials"


def test_a_session_needs_no_socket_to_stay(guarded: Api) -> None:
    async def scenario() -> None:
        async with guarded.serving() as running, httpx.AsyncClient(trust_env=False, timeout=120) as client:
            url = f"http://{running.address}/v1"
            await client.post(f"{url}/session", headers=bearer(VIEWER_TOKEN))
            assert (await client.get(f"{url}/clients")).status_code == 200

    asyncio.run(scenario())
