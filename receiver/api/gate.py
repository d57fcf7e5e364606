"""The gate of the REST API: who may pass, and the audit log of what they change.

Owns the refusals 401 and 403 and the form of an audit line. Who somebody is, is :mod:`receiver.api.access`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, cast

import structlog
from fastapi import Depends, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from receiver.api.access import Access, Caller, Refusal, changes
from receiver.api.problems import problem_response
from receiver.log import RateLimitedLog
from receiver.principal.distinguished_name import subject_name

__all__ = ["AuditedChange", "Change", "Gate"]

_MAX_PATH: Final = 512
_MAX_SUBJECT: Final = 512

#: Its own level, because `log.level` may not silence it. Bound anew each time: the form may change.
_audit = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET))

_CHALLENGE: Final = 'Bearer realm="kafka-telemetry"'


@dataclass(slots=True)
class Change:
    """What a request has changed; its endpoint fills it in.

    Attributes:
        before: The whole document before, None where there was none.
        after: The whole document after, None where there is none any more.
    """

    before: Any = None
    after: Any = None


def _change(request: Request) -> Change:
    return cast("Change", request.state.change)


#: An endpoint that changes something has a parameter of this type, and fills it in once it has done so.
AuditedChange = Annotated[Change, Depends(_change)]


class Gate:
    """Lets through who may pass, and writes down what they change.

    Args:
        app: The application.
        access: Knows who there is.
        refused: Counts a refusal, by reason.
    """

    def __init__(self, app: ASGIApp, *, access: Access, refused: Callable[[str], None]) -> None:
        self._app = app
        self._access = access
        self._refused = refused
        self._log = RateLimitedLog("receiver.api")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer 401 or 403."""
        authenticates = self._access.settings.authenticates
        if authenticates and self._access.is_open(scope["method"], scope["path"]):
            await self._app(scope, receive, _closing(send))
            return
        state = scope.setdefault("state", {})
        authorization = [value for name, value in scope["headers"] if name == b"authorization"]
        found = self._access.caller(authorization, state.get("client_certificate"))
        if isinstance(found, Refusal):
            await self._unknown(found, scope, receive, send)
        elif not changes(scope["method"]):
            await self._app(scope, receive, send)
        elif found.role == "editor":
            await self._audited(found, scope, receive, send)
        else:
            self._refused(Refusal.ROLE)
            _write(scope, found, "refused", 403)
            detail = f"the role {found.role} may only read: {scope['method']} needs the role editor"
            await problem_response(403, detail)(scope, receive, send)

    async def _unknown(self, reason: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        self._refused(reason)
        facts = {}
        if reason is Refusal.UNKNOWN_CERTIFICATE:
            # As rest.clients has to have it: not every program writes it so.
            facts["subject"] = subject_name(scope["state"]["client_certificate"])[:_MAX_SUBJECT]
        self._log.warning(
            "a REST request was refused: nobody knows who sent it",
            kind=reason,
            reason=reason.value,
            method=scope["method"],
            path=_path(scope),
            source_address=_source(scope),
            **facts,
        )
        # Closing makes each guess cost a connection, whose number is bounded.
        headers = {"www-authenticate": _CHALLENGE}
        if reason is not Refusal.NO_CREDENTIALS:
            headers["www-authenticate"] += ', error="invalid_token"'
        await problem_response(401, self._needed(), headers=headers)(scope, receive, _closing(send))

    def _needed(self) -> str:
        ways = []
        if self._access.settings.tokens:
            ways.append("a token of rest.tokens as `Authorization: Bearer TOKEN`")
        if self._access.settings.clients:
            ways.append("a client certificate whose subject is in rest.clients")
        return f"authentication is needed: {', or '.join(ways)}"

    async def _audited(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        change = scope["state"]["change"] = Change()
        status: int | None = None

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:
            status = 500
            raise
        finally:
            # Also where the request was cut off: what it has done by then is done.
            if status is not None and status < 400:
                _write(scope, caller, "changed", status, before=change.before, after=change.after)
            else:
                _write(scope, caller, "unknown" if status is None else "failed", status)


def _write(scope: Scope, caller: Caller, outcome: str, status: int | None, **documents: Any) -> None:
    _audit.info(
        "change",
        logger="receiver.audit",
        who=caller.name,
        role=caller.role,
        authenticated_by=caller.authenticated_by,
        source_address=_source(scope),
        method=scope["method"],
        path=_path(scope),
        outcome=outcome,
        status=status,
        **documents,
    )


def _path(scope: Scope) -> str:
    # As it came, so percent-encoded: what it stands for could forge a line. The query is left out.
    raw: bytes = scope["raw_path"]
    return raw[:_MAX_PATH].decode("latin-1")


def _source(scope: Scope) -> str | None:
    client: tuple[str, int] | None = scope.get("client")
    return client[0] if client else None


def _closing(send: Send) -> Send:
    """Close the connection after the answer."""

    async def closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return closing
