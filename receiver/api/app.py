"""Builds the REST application: endpoints, middleware and OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI

from receiver.api import problems
from receiver.api.authentication import Authenticator
from receiver.api.authorization import AuthorizationMiddleware
from receiver.api.cluster import MemberRequests
from receiver.api.dependencies import ApiDependencies
from receiver.api.documents import ExplainBody, OwnerBody, OwnerPatchBody, PatchBody, SubscriptionBody
from receiver.api.limits import HeadAsGet, HeaderCheck, LoopbackHostCheck
from receiver.api.routes import (
    clients,
    connections,
    console,
    events,
    explain,
    findings,
    health,
    links,
    listeners,
    owners,
    plugins,
    receivers,
    series,
    session,
    signs,
    status,
    subscriptions,
    upgrade_check,
    usage,
    values,
)
from receiver.api.sessions import COOKIE_NAME
from receiver.settings.rest import RestSettings

_DESCRIPTION = """\
What Kafka clients are asked for, which clients there are, and the state of the receiver. Every error is
a problem document (RFC 9457, `application/problem+json`) that names the field.
"""


#: The endpoints, in the order of the OpenAPI document.
_PARTS: Final = (
    subscriptions,
    clients,
    explain,
    values,
    signs,
    findings,
    series,
    connections,
    usage,
    upgrade_check,
    owners,
    links,
    listeners,
    plugins,
    events,
    status,
    receivers,
    session,
    health,
)


def create_api(dependencies: ApiDependencies, settings: RestSettings) -> FastAPI:
    """Build the REST application; a wrong token file raises ServerError."""
    app = _Api(
        title="Kafka Client Telemetry",
        version=dependencies.version,
        description=_DESCRIPTION,
        # FastAPI's documentation pages load scripts from another origin.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.dependencies = dependencies
    app.state.settings = settings
    routers = [part.router for part in _PARTS]
    if settings.console:
        routers.append(console.router)
    app.state.endpoints = [route for router in routers for route in router.routes]
    # `include_router` builds each route a second time, when the first request comes: half a second.
    app.router.routes.extend(app.state.endpoints)
    authenticator = Authenticator(settings, sessions=dependencies.sessions)
    app.state.authenticator = authenticator
    app.state.sign_reader = signs.SignReader()
    app.state.topic_reader = owners.TopicReader()
    problems.register(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(MemberRequests, receiver_id=dependencies.cluster.receiver_id)
    app.add_middleware(
        AuthorizationMiddleware,
        authenticator=authenticator,
        count_refusal=dependencies.count_refusal,
    )
    if not settings.authenticates:
        # Without authentication the API listens on loopback only. With it, operators may use any
        # host name, because a page that uses DNS rebinding has no token and no certificate.
        app.add_middleware(LoopbackHostCheck)
    app.add_middleware(HeaderCheck)
    return app


class _Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Add subscription body, problem documents and authentication to the document."""
        if self.openapi_schema is None:
            schema = super().openapi()
            components = schema["components"]["schemas"]
            schema["components"]["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE_NAME},
            }
            # One of them, or none where none is configured.
            schema["security"] = [{"token": []}, {"certificate": []}, {"session": []}, {}]
            for body in (SubscriptionBody, ExplainBody, PatchBody, OwnerBody, OwnerPatchBody):
                body_schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
                components |= body_schema.pop("$defs", {})
                components[body.__name__] = body_schema
            for operations in schema["paths"].values():
                for operation in operations.values():
                    _describe_problems(operation["responses"])
        return self.openapi_schema or {}


def _describe_problems(responses: dict[str, Any]) -> None:
    for code, response in responses.items():
        if int(code) >= 400:
            response["content"] = {
                problems.PROBLEM_CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
            }
