"""docs/rest.md names every endpoint with its answers and every bound, and no others."""

import re
from pathlib import Path

import httpx
import pytest
from pydantic import BaseModel

from receiver.api import connection, connection_rate, server
from receiver.api.bodies import MAX_BODY_BYTES
from receiver.api.documents import ExplainBody, PatchBody, SubscriptionBody
from receiver.api.limits import MAX_HEADER_BYTES
from receiver.api.pages import MAX_LIMIT
from receiver.telemetry.selectors import SELECTORS
from receiver.telemetry.subscription_checks import DEFAULT_INTERVAL_MS, MAX_INTERVAL_MS, MIN_INTERVAL_MS
from receiver.telemetry.subscription_document import FIELDS, READ_ONLY_FIELDS
from tests.unit.api.conftest import Api

PAGE = (Path(__file__).parents[3] / "docs" / "rest.md").read_text()


def test_every_endpoint_is_there_with_every_answer(api: Api) -> None:
    described: dict[tuple[str, str], set[str]] = {}

    async def scenario(rest: httpx.AsyncClient) -> None:
        for path, operations in (await rest.get("/openapi.json")).json()["paths"].items():
            for method, operation in operations.items():
                described[method.upper(), path] = set(operation["responses"])

    api.run(scenario)
    rows = re.findall(r"^\| `([A-Z]+) (/\S*)` \|[^|]*\| ([^|]*) \|$", PAGE, re.MULTILINE)
    documented = {(method, path): set(re.findall(r"\d{3}", answers)) for method, path, answers in rows}
    assert documented == described


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (SubscriptionBody, {"name", *FIELDS, *READ_ONLY_FIELDS}),
        (ExplainBody, {"name", *FIELDS, *READ_ONLY_FIELDS}),
        (PatchBody, {"name", *FIELDS, *READ_ONLY_FIELDS, "add_metrics", "remove_metrics"}),
    ],
)
def test_the_openapi_document_has_every_field_of_a_body(model: type[BaseModel], fields: set[str]) -> None:
    assert model.model_fields.keys() == fields
    assert all(f"`{field}`" in PAGE for field in fields)


def test_the_bounds_are_the_real_ones() -> None:
    assert f"more than {MAX_BODY_BYTES:,} bytes" in PAGE
    assert PAGE.count(f"{MAX_HEADER_BYTES:,} bytes") == 2
    assert f"{server._MAX_CONNECTIONS} connections" in PAGE
    assert f"{server._HANDSHAKE_S:g} seconds for a TLS handshake" in " ".join(PAGE.split())
    assert (
        f"{connection._REQUEST_S:g} for a request's headers, {connection._ANSWER_S:g} for its answer, "
        f"{connection._READ_S:g} to read the end of the answer, "
        f"{connection.IDLE_S:g} between an answer and the next request" in " ".join(PAGE.split())
    )
    assert (
        f"{connection_rate._BURST} connections at once and {connection_rate._PER_S:g} a second"
        in " ".join(PAGE.split())
    )
    assert f"`limit` (1 to {MAX_LIMIT}, by default 100)" in PAGE
    assert f"{MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}" in PAGE
    assert f"| {DEFAULT_INTERVAL_MS} |" in PAGE
    assert all(f"`{selector}`" in PAGE for selector in SELECTORS)
