"""``/v1/session``: who the caller is, and a cookie in the place of a token."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from receiver.api.authentication import Authenticator, Caller
from receiver.api.problems import ProblemError, problem_answers
from receiver.api.queries import NO_QUERY
from receiver.api.sessions import CSRF_HEADER, cookie_header, cookie_value
from receiver.settings.rest import Role

router = APIRouter(
    prefix="/v1/session", tags=["session"], dependencies=[NO_QUERY], responses=problem_answers(422)
)


class SessionView(BaseModel):
    """The caller, as named in the configuration."""

    name: str
    role: Role
    authenticated_by: Literal["token", "certificate", "session", "nothing"]
    csrf_token: str | None = Field(
        description=f"In a session, the header `{CSRF_HEADER}` of each request that does not only read."
    )


def _authenticator(request: Request) -> Authenticator:
    return cast("Authenticator", request.app.state.authenticator)


def _caller(request: Request) -> Caller:
    return cast("Caller", request.state.caller)


_Authenticator = Annotated[Authenticator, Depends(_authenticator)]
_Caller = Annotated[Caller, Depends(_caller)]


@router.get("", summary="Show who the caller is")
async def show_session(caller: _Caller) -> SessionView:
    """Show the caller's name and role."""
    return _view(caller, caller.csrf_token)


@router.post("", summary="Open a session", responses=problem_answers(409))
async def open_session(
    request: Request, response: Response, authenticator: _Authenticator, caller: _Caller
) -> SessionView:
    """Open a session for the token in `Authorization`. The answer sets its cookie.

    It ends after 12 hours, when the token is no longer valid, or when the core starts again.
    """
    opened = authenticator.open_session(request.headers.get("authorization", "").encode("latin-1"))
    if opened is None:
        raise ProblemError(409, "only a token opens a session: send it as `Authorization: Bearer TOKEN`")
    value, session = opened
    response.headers["set-cookie"] = cookie_header(value, secure=authenticator.secure)
    view = _view(caller, session.csrf_token)
    view.authenticated_by = "session"
    return view


@router.delete("", summary="End the session", status_code=204)
async def close_session(request: Request, authenticator: _Authenticator) -> Response:
    """End the session of the cookie, if there is one, and remove the cookie."""
    headers = [value for name, value in request.headers.raw if name == b"cookie"]
    value = cookie_value(headers, secure=authenticator.secure)
    if value is not None:
        authenticator.sessions.close(value)
    return Response(status_code=204, headers={"set-cookie": cookie_header("", secure=authenticator.secure)})


def _view(caller: Caller, csrf_token: str | None) -> SessionView:
    return SessionView(
        name=caller.name, role=caller.role, authenticated_by=caller.authenticated_by, csrf_token=csrf_token
    )
