"""The REST application: its endpoints, its bounds, and problem documents for whatever goes wrong.

Owns the putting together. Serving it is :mod:`receiver.api.server`'s.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from receiver.api import problems
from receiver.api.access import Access
from receiver.api.dependencies import ApiDependencies
from receiver.api.gate import Gate
from receiver.api.limits import LOOPBACK_HOSTS, HeaderCheck, HostCheck
from receiver.api.routes import clients, connections, health, plugins, series, subscriptions
from receiver.api.routes.subscriptions import SubscriptionBody
from receiver.settings.rest import RestSettings

__all__ = ["create_api"]

_DESCRIPTION = """\
What Kafka clients are asked for, who they are, and how the receiver does. Every error is a problem document
(RFC 9457, `application/problem+json`) that names the field.
"""


def create_api(dependencies: ApiDependencies, settings: RestSettings) -> FastAPI:
    """Make the REST application.

    Args:
        dependencies: Who keeps what it shows and changes.
        settings: Who may ask.

    Returns:
        An ASGI application for HTTP alone. It has no start-up or shut-down of its own.

    Raises:
        ServerError: A file that should hold a token doesn't.
    """
    app = _Api(
        title="Kafka Client Telemetry",
        version=dependencies.version,
        description=_DESCRIPTION,
        # The pages would load scripts from elsewhere; the document itself is enough for any tool.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.dependencies = dependencies
    for routes in (subscriptions, clients, series, connections, plugins, health):
        app.include_router(routes.router)
    problems.register(app)
    app.add_middleware(Gate, access=Access(settings), refused=dependencies.refused)
    if not settings.authenticates:
        # It listens on loopback alone, then. Who has to show a token or a certificate can't be a web page
        # that has its own name point here, so operators may call the host what they like.
        app.add_middleware(HostCheck, hosts=LOOPBACK_HOSTS)
    app.add_middleware(HeaderCheck)
    return app


class _Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """The description of the API, with the body that is read by hand, problems, and who may ask."""
        if self.openapi_schema is None:
            schema = super().openapi()
            components = schema["components"]["schemas"]
            schema["components"]["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            }
            # Either, or neither where neither is configured.
            schema["security"] = [{"token": []}, {"certificate": []}, {}]
            components["SubscriptionBody"] = SubscriptionBody.model_json_schema()
            # FastAPI's own error form, which is never answered.
            for name in ("HTTPValidationError", "ValidationError"):
                components.pop(name, None)
            for operations in schema["paths"].values():
                for operation in operations.values():
                    _describe_problems(operation["responses"])
        return self.openapi_schema or {}


def _describe_problems(responses: dict[str, Any]) -> None:
    for status, response in list(responses.items()):
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        if schema.get("$ref", "").endswith("/HTTPValidationError"):
            # FastAPI adds it to whatever has a parameter, also where any value is good.
            del responses[status]
        elif int(status) >= 400:
            response["content"] = {
                problems.PROBLEM_CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
            }
