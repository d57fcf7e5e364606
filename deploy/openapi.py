"""The OpenAPI document of the REST API, without a receiver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from receiver.api import ApiDependencies, create_api
from receiver.settings.rest import RestSettings


def openapi_document() -> dict[str, Any]:
    """Return the document that a receiver serves at ``/openapi.json``."""
    stand_in = SimpleNamespace(
        version="1", count_refusal=None, sessions=None, cluster=SimpleNamespace(receiver_id=None)
    )
    return create_api(cast("ApiDependencies", stand_in), RestSettings()).openapi()
