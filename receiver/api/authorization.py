"""Middleware that refuses requests (401, 403) and audits changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, cast

from fastapi import Depends, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from receiver import audit
from receiver.api.authentication import Authenticator, Caller, Refusal, is_change
from receiver.api.problems import problem_response
from receiver.api.security_headers import with_headers
from receiver.api.sessions import CSRF_HEADER
from receiver.log import RateLimitedLog
from receiver.principal.distinguished_name import subject_name

_MAX_PATH: Final = 512
_MAX_SUBJECT: Final = 512

_CSRF_HEADER: Final = CSRF_HEADER.encode()
_CHALLENGE: Final = 'Bearer realm="kafka-telemetry"'


@dataclass(slots=True)
class Change:
    """Who changes, and the documents before and after, for the audit log.

    None: no document.
    """

    who: str
    before: Any = None
    after: Any = None


def _change(request: Request) -> Change:
    return cast("Change", request.state.change)


#: An endpoint that changes something takes a parameter of this type and fills it in.
AuditedChange = Annotated[Change, Depends(_change)]


class AuthorizationMiddleware:
    """Passes on requests of authorized callers and audits each change."""

    def __init__(
        self, app: ASGIApp, *, authenticator: Authenticator, count_refusal: Callable[[str], None]
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._count_refusal = count_refusal
        self._log = RateLimitedLog("receiver.api")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401 or 403."""
        authenticates = self._authenticator.settings.authenticates
        if authenticates and self._authenticator.is_open(scope["method"], scope["path"]):
            await self._app(scope, receive, with_headers(send, (b"connection", b"close")))
            return
        state = scope.setdefault("state", {})
        caller = self._authenticator.authenticate(
            _values(scope, b"authorization"), state.get("client_certificate"), _values(scope, b"cookie")
        )
        state["caller"] = caller
        if isinstance(caller, Refusal):
            await self._refuse(caller, scope, receive, send)
        elif not caller.may_send(scope["method"], next(iter(_values(scope, _CSRF_HEADER)), None)):
            self._count_refusal(Refusal.CSRF)
            detail = f"in a session this needs the header {CSRF_HEADER}: csrf_token of GET /v1/session"
            await problem_response(403, detail)(scope, receive, send)
        elif not is_change(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
        elif caller.role == "editor":
            await self._audit(caller, scope, receive, send)
        else:
            self._count_refusal(Refusal.ROLE)
            _write_audit_line(scope, caller, "refused", 403)
            detail = f"the role {caller.role} may only read: {scope['method']} needs the role editor"
            await problem_response(403, detail)(scope, receive, send)

    async def _refuse(self, reason: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        self._count_refusal(reason)
        fields = {}
        if reason is Refusal.UNKNOWN_CERTIFICATE:
            # Operators copy the subject from here into rest.clients, because programs format it
            # differently.
            fields["subject"] = subject_name(scope["state"]["client_certificate"])[:_MAX_SUBJECT]
        self._log.warning(
            "REST request refused, caller unknown",
            kind=reason,
            reason=reason.value,
            method=scope["method"],
            path=_path(scope),
            source_address=_source_address(scope),
            **fields,
        )
        # The connection is closed so that each guess costs a connection, whose rate is limited.
        headers = {"www-authenticate": _CHALLENGE, "connection": "close"}
        if reason is not Refusal.NO_CREDENTIALS:
            headers["www-authenticate"] += ', error="invalid_token"'
        await problem_response(401, self._how_to(), headers=headers)(scope, receive, send)

    def _how_to(self) -> str:
        ways = []
        if self._authenticator.settings.tokens:
            ways.append("a token of rest.tokens as `Authorization: Bearer TOKEN`")
        if self._authenticator.settings.clients:
            ways.append("a client certificate whose subject is in rest.clients")
        return f"authentication is needed: {', or '.join(ways)}"

    async def _audit(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        change = scope["state"]["change"] = Change(caller.name)
        status: int | None = None

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_status)
        except Exception:
            status = 500
            raise
        finally:
            # A request that was cut off is written too, because it may have changed something by
            # then.
            if status is not None and status < 400:
                _write_audit_line(scope, caller, "changed", status, before=change.before, after=change.after)
            else:
                _write_audit_line(scope, caller, "unknown" if status is None else "failed", status)


def _write_audit_line(
    scope: Scope, caller: Caller, outcome: str, status: int | None, **documents: Any
) -> None:
    audit.write(
        who=caller.name,
        role=caller.role,
        authenticated_by=caller.authenticated_by,
        source_address=_source_address(scope),
        method=scope["method"],
        path=_path(scope),
        outcome=outcome,
        status=status,
        **documents,
    )


def _values(scope: Scope, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == wanted]


def _path(scope: Scope) -> str:
    # Percent-encoded as received, because decoded characters could forge a log line. Without the
    # query.
    raw: bytes = scope["raw_path"]
    return raw[:_MAX_PATH].decode("latin-1")


def _source_address(scope: Scope) -> str | None:
    client: tuple[str, int] | None = scope.get("client")
    return client[0] if client else None
