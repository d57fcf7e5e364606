"""Health, metrics, hosts, and problem documents for whatever goes wrong at any endpoint."""

import logging

import httpx
import pytest

from tests.unit.api.conftest import Api, problem_of


def test_health(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        assert (await rest.get("/livez")).json() == {"status": "live", "version": "9.9.9"}
        assert (await rest.get("/readyz")).json() == {"status": "ready", "version": "9.9.9"}
        api.warnings.append("something is stale")
        assert (await rest.get("/readyz")).json() == {
            "status": "ready",
            "version": "9.9.9",
            "warnings": ["something is stale"],
        }
        api.not_ready_because = "the receiver is draining"
        assert problem_of(await rest.get("/readyz"), 503)["detail"] == "the receiver is draining"
        assert (await rest.get("/readyz?listeners=any")).status_code == 200
        api.accepts_somewhere = False
        assert (
            problem_of(await rest.get("/readyz?listeners=any"), 503)["detail"] == "the receiver is draining"
        )
        assert (await rest.get("/readyz?listeners=some")).status_code == 422
        assert (await rest.get("/livez")).status_code == 200
        api.supervisor_hangs = True
        assert "restart the receiver" in problem_of(await rest.get("/livez"), 503)["detail"]

    api.run(scenario)


def test_metrics(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        answer = await rest.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert answer.headers.get_list("content-type") == [answer.headers["content-type"]]
        assert 'kafka_telemetry_build_info{python="3.' in answer.text
        answer = await rest.get("/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"})
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert answer.text.endswith("# EOF\n")

    api.run(scenario)


@pytest.mark.parametrize(
    "path", ["/v1", "/console/", "/v1/subscriptions/", "/v2/subscriptions", "/docs", "/v1/clients/a/b"]
)
def test_an_unknown_path_is_not_found(api: Api, path: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        problem_of(await rest.get(path), 404)

    api.run(scenario)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/subscriptions", {"GET", "HEAD"}),
        ("POST", "/v1/subscriptions/s", {"GET", "HEAD", "PUT", "PATCH", "DELETE"}),
        ("DELETE", "/v1/clients", {"GET", "HEAD"}),
        ("OPTIONS", "/v1/subscriptions/s", {"GET", "HEAD", "PUT", "PATCH", "DELETE"}),
        ("PUT", "/livez", {"GET", "HEAD"}),
    ],
)
def test_a_method_that_is_not_allowed(api: Api, method: str, path: str, allowed: set[str]) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        answer = await rest.request(method, path)
        problem_of(answer, 405)
        assert {part.strip() for part in answer.headers["allow"].split(",")} == allowed

    api.run(scenario)


@pytest.mark.parametrize("path", ["/v1/subscriptions", "/v1/subscriptions/s", "/livez", "/metrics"])
def test_head_has_the_headers_of_get_and_no_body(api: Api, path: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        await rest.put("/v1/subscriptions/s", json={"metrics": ["*"]})
        get, head = await rest.get(path), await rest.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers.keys() == get.headers.keys()
        assert head.headers["content-type"] == get.headers["content-type"]
        assert head.headers.get("etag") == get.headers.get("etag")
        problem = await rest.head("/v1/subscriptions/absent")
        assert (problem.status_code, problem.content) == (404, b"")

    api.run(scenario)


@pytest.mark.parametrize(
    ("path", "errors"),
    [
        ("/v1/subscriptions?limits=5", {"limits": "unknown parameter; did you mean limit?"}),
        ("/v1/subscriptions/s?limit=5", {"limit": "unknown parameter"}),
        ("/v1/clients?limit=0&colour=red", {"limit": "1 to 1000", "colour": "unknown parameter"}),
        ("/v1/connections?x=1&y=2", {"x": "unknown parameter", "y": "unknown parameter"}),
        ("/v1/series?limit=1001", {"limit": "1 to 1000"}),
        ("/v1/plugins?x=1", {"x": "unknown parameter"}),
        ("/v1/listeners?x=1", {"x": "unknown parameter"}),
        ("/readyz?listeners=some", {"listeners": "one of all, any"}),
        ("/livez?x=1", {"x": "unknown parameter"}),
        ("/metrics?x=1", {"x": "unknown parameter"}),
    ],
)
def test_every_wrong_parameter_is_refused(api: Api, path: str, errors: dict[str, str]) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        found = {error["field"]: error["detail"] for error in problem_of(await rest.get(path), 422)["errors"]}
        assert found.keys() == errors.keys()
        for field, detail in errors.items():
            assert detail in found[field], found

    api.run(scenario)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1234", "LOCALHOST", "[::1]:8642"])
def test_a_loopback_host_is_accepted(api: Api, host: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        assert (await rest.get("/livez", headers={"host": host})).status_code == 200

    api.run(scenario)


@pytest.mark.parametrize("host", ["attacker.example", "127.0.0.1.attacker.example:8642", "", "localhost:x"])
def test_another_host_is_refused(api: Api, host: str) -> None:
    # DNS rebinding: a web page could otherwise read and change everything.
    async def scenario(rest: httpx.AsyncClient) -> None:
        problem_of(await rest.get("/v1/clients", headers={"host": host}), 421)

    api.run(scenario)


def test_an_unexpected_error_reveals_no_detail(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    def broken(accept: str | None) -> tuple[bytes, str]:
        raise RuntimeError("hunter2")

    api.exposition = broken

    async def scenario(rest: httpx.AsyncClient) -> None:
        answer = await rest.get("/metrics")
        assert problem_of(answer, 500)["detail"] == "the receiver failed; see its log for the reason"
        assert "hunter2" not in answer.text

    with caplog.at_level(logging.ERROR):
        api.run(scenario)


def test_the_openapi_document_lists_every_endpoint_and_its_problem_documents(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        document = (await rest.get("/openapi.json")).json()
        assert set(document["paths"]) == {
            "/v1/status",
            "/v1/subscriptions",
            "/v1/subscriptions/{name}",
            "/v1/clients",
            "/v1/clients/{client_instance_id}",
            "/v1/clients/{client_instance_id}/explain",
            "/v1/clients/{client_instance_id}/values",
            "/v1/explain",
            "/v1/events",
            "/v1/series",
            "/v1/connections",
            "/v1/usage",
            "/v1/owners",
            "/v1/owners/{team}",
            "/v1/upgrade-check",
            "/v1/findings",
            "/v1/links",
            "/v1/listeners",
            "/v1/plugins",
            "/v1/receivers",
            "/v1/session",
            "/v1/signs",
            "/livez",
            "/readyz",
            "/metrics",
        }
        schemas = document["components"]["schemas"]
        assert {"Problem", "SubscriptionBody", "SubscriptionView", "ClientView", "ConnectionView"} <= set(
            schemas
        )
        assert "HTTPValidationError" not in schemas
        for operations in document["paths"].values():
            for operation in operations.values():
                for status, response in operation["responses"].items():
                    if int(status) >= 400:
                        assert list(response["content"]) == ["application/problem+json"]

    api.run(scenario)
